import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops import sample
from ops.sample import HashOrderSample, hash_ids, share_out

DOCUMENTS = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 50)), max_size=60, unique_by=lambda pair: pair[0])


def limit_of(documents: list[tuple[int, int]], budget: int, batch: int) -> int:
    collected = HashOrderSample(budget)
    for start in range(0, len(documents), batch):
        part = documents[start : start + batch]
        collected.add(np.array([d[0] for d in part], np.uint64), np.array([d[1] for d in part], np.int64))
    return collected.limit(budget)


@settings(deadline=None)
@given(DOCUMENTS, st.integers(0, 400), st.integers(1, 7), st.randoms(use_true_random=False))
def test_the_sample_is_the_prefix_in_hash_order_whatever_the_arrival(documents, budget, batch, random) -> None:  # type: ignore[no-untyped-def]
    expected, used = [], 0
    for value, size in sorted(documents):
        used += size
        if used > budget:
            break
        expected.append(value)
    random.shuffle(documents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample, "PRUNE_ROWS", 5)
        limit = limit_of(documents, budget, batch)
    assert sorted(value for value, _ in documents if value < limit) == expected


def test_a_smaller_budget_than_collected_for_is_served_and_a_larger_one_refused() -> None:
    collected = HashOrderSample(100)
    collected.add(np.array([3, 1, 2], np.uint64), np.array([10, 10, 10], np.int64))
    with pytest.raises(ValueError, match="can't serve"):
        collected.limit(101)
    assert collected.limit(20) == 3


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 10_000), max_size=6),
    st.integers(1, 20_000),
    st.integers(1, 9_000),
)
def test_shares_never_exceed_the_budget_the_cap_or_what_there_is(available: dict[str, int], budget: int, cap: int) -> None:
    shares = share_out(budget, available, cap)
    assert sum(shares.values()) <= budget
    assert all(0 <= share <= min(cap, available[source]) for source, share in shares.items())
    possible = min(budget, sum(min(cap, size) for size in available.values()))
    assert sum(shares.values()) >= possible - len(available)  # nothing is left lying but the roundings


def test_shares_are_proportional_where_no_cap_binds() -> None:
    assert share_out(30, {"a": 100, "b": 200}, 1000) == {"a": 10, "b": 20}


def test_what_a_capped_source_leaves_goes_to_the_others_in_proportion() -> None:
    assert share_out(90, {"crawl": 10_000, "a": 100, "b": 200}, 45) == {"crawl": 45, "a": 15, "b": 30}


def test_the_same_id_has_other_hashes_under_other_keys() -> None:
    assert hash_ids(["x"], 1) != hash_ids(["x"], 2)
    assert hash_ids([], 1).dtype == np.uint64
