from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ops.cache import TokenCache, held_out_documents, read_ledger, select_documents
from tests.ops.stores import Document, store_of


def cache_of(directory: Path, lengths: list[int]) -> TokenCache:
    """Held-out documents of so many tokens: those are never dropped, not even where they have none."""
    documents = [Document(str(i), (i + 2,) * length, held_out=True) for i, length in enumerate(lengths)]
    return TokenCache.open(store_of(directory, {"a": [*documents, Document("train", (2,))]}, vocab_size=1000), "held_out/a/all")


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=12), cut=st.tuples(st.integers(0, 80), st.integers(1, 80)))
def test_the_documents_of_a_span_are_those_that_own_one_of_its_tokens(tmp_path_factory, lengths, cut) -> None:  # type: ignore[no-untyped-def]
    cache = cache_of(tmp_path_factory.mktemp("c"), lengths)
    owners = [d for d in range(cache.documents) for _ in range(len(cache.document(d)))]
    start = cut[0] % len(owners)
    end = min(len(owners), start + cut[1])
    assert list(cache.documents_at(start, end)) == sorted(set(owners[start:end]))


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(0, 30), min_size=1, max_size=12), budget=st.integers(0, 200))
def test_a_selection_fills_its_budget_and_larger_ones_contain_it(tmp_path_factory, lengths, budget) -> None:  # type: ignore[no-untyped-def]
    cache = cache_of(tmp_path_factory.mktemp("c"), lengths)
    chosen = dict(select_documents(cache, budget))
    available = sum(length + 1 for length in lengths if length)
    assert min(budget, available) - 1 <= sum(chosen.values()) <= budget
    assert all(2 <= take <= len(cache.document(index)) for index, take in chosen.items())
    larger = dict(select_documents(cache, budget + 7))
    assert all(larger[index] >= take for index, take in chosen.items())


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(0, 30), min_size=1, max_size=12), budget=st.integers(0, 200), most=st.integers(2, 9))
def test_no_document_gives_a_selection_more_than_its_cap(tmp_path_factory, lengths, budget, most) -> None:  # type: ignore[no-untyped-def]
    cache = cache_of(tmp_path_factory.mktemp("c"), lengths)
    chosen = dict(select_documents(cache, budget, most))
    available = sum(min(length + 1, most) for length in lengths if length)
    assert min(budget, available) - 1 <= sum(chosen.values()) <= budget
    assert all(2 <= take <= most for take in chosen.values())
    assert chosen.keys() >= dict(select_documents(cache, budget)).keys()


def test_a_selection_does_not_prefer_the_first_documents(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, [9] * 400)
    indices = [index for index, _ in select_documents(cache, 1000)]
    assert indices == sorted(indices)
    assert 120 < np.mean(indices) < 280  # of 400; the first hundred would have 50


def test_held_out_documents_are_read_from_their_domain_alone(tmp_path: Path) -> None:
    held_out = [Document(f"h{i}", (i + 2, 9, 9), held_out=True) for i in range(3)]
    store = store_of(tmp_path, {"a": [*held_out, Document("t", (40, 41))], "b": [Document("u", (42, 43), held_out=True)]})
    assert sorted(tokens.tolist() for tokens in held_out_documents(store, "a", 1000, 99)) == [[i + 2, 9, 9, 0] for i in range(3)]
    assert sorted(tokens.tolist() for tokens in held_out_documents(store, "a", 1000, 2)) == [[i + 2, 9] for i in range(3)]
    with pytest.raises(FileNotFoundError):
        list(held_out_documents(store, "c", 1000, 99))
    assert [bucket.domain for bucket in read_ledger(store).split("held_out")] == ["a", "b"]
