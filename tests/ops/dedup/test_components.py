"""Links and components against a union-find."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from infra.artifacts.writer import Writer
from ops.dedup.candidates import Links, propose_links
from ops.dedup.components import components_of
from ops.dedup.numbering import Numbering
from tests.builders import artifact_of
from tests.ops.normalized import normalized


def union_find(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """The least member of each one's set."""
    parent = list(range(count))

    def root(node: int) -> int:
        while parent[node] != node:
            node = parent[node]
        return node

    for a, b in edges:
        low, high = sorted((root(a), root(b)))
        parent[high] = low
    return [root(node) for node in range(count)]


def links_of(directory: Path, buckets: list[list[int]], cap: int = 10_000) -> Links:
    """Links of one source whose documents have these buckets."""
    source = normalized(directory / "in", [f"{n}" for n in range(len(buckets))], shards=2)
    names = [name for name in source.names if name.startswith("part-")]
    half = -(-len(buckets) // 2)
    column = pa.array(buckets, pa.list_(pa.uint64()))
    signatures = artifact_of(
        directory / "mh", {names[0]: pa.table({"buckets": column[:half]}), names[1]: pa.table({"buckets": column[half:]})}
    )
    out = Writer(str(directory / "out"), scratch_url=str(directory / "scratch"))
    return propose_links({"s": signatures}, Numbering.of({"s": source}), cap, out)


@pytest.mark.parametrize("seed", range(8))
def test_components_agree_with_union_find(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(2, 300)
    edges = [tuple(sorted(rng.sample(range(count), 2))) for _ in range(rng.randint(0, count))]
    left, right = (np.array([edge[side] for edge in edges], np.int64) for side in (0, 1))
    found = components_of(left, right)
    oracle = union_find(count, edges)  # type: ignore[arg-type]
    touched = sorted({node for edge in edges for node in edge})
    assert found.members.tolist() == touched
    assert found.heads.tolist() == [oracle[node] for node in touched]


def test_the_order_of_edges_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.integers(0, 500, (2, 400))
    shuffled = rng.permutation(400)
    one, other = components_of(left, right), components_of(right[shuffled], left[shuffled])
    assert one.heads.tolist() == other.heads.tolist()


def test_a_long_chain_is_one_component() -> None:
    """Label propagation with ten rounds would leave it in pieces."""
    found = components_of(np.arange(5_000), np.arange(1, 5_001))
    assert (found.count, found.largest) == (1, 5_001)


@pytest.mark.parametrize("entries_per_part", [2_000_000, 20])
def test_documents_that_share_a_bucket_are_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries_per_part: int) -> None:
    monkeypatch.setattr("ops.dedup.candidates.ENTRIES_PER_PART", entries_per_part)
    rng = random.Random(3)
    buckets = [rng.sample(range(60), rng.randint(0, 4)) for _ in range(80)]
    links = links_of(tmp_path, buckets)
    by_bucket: dict[int, list[int]] = {}
    for number, found in enumerate(buckets):
        for bucket in found:
            by_bucket.setdefault(bucket, []).append(number)
    pairs = [(a, b) for members in by_bucket.values() for a in members for b in members if a < b]
    components = components_of(links.left, links.right)
    heads = dict(zip(components.members.tolist(), components.heads.tolist(), strict=True))
    assert [heads.get(number, number) for number in range(80)] == union_find(80, pairs)
    assert links.shared_buckets == sum(len(members) > 1 for members in by_bucket.values())
    assert links.largest_bucket == max(map(len, by_bucket.values()))
    heads_of = {(members[0], other) for members in by_bucket.values() for other in members[1:]}
    assert sorted(zip(links.left.tolist(), links.right.tolist(), strict=True)) == sorted(heads_of)


def test_a_bucket_of_n_documents_costs_n_minus_1_links(tmp_path: Path) -> None:
    links = links_of(tmp_path, [[7]] * 50)
    assert (len(links.left), set(links.left.tolist()), links.capped_buckets) == (49, {0}, 0)


def test_a_bucket_over_the_cap_is_cut_into_runs_and_counted(tmp_path: Path) -> None:
    links = links_of(tmp_path, [[7]] * 10, cap=4)
    components = components_of(links.left, links.right)
    assert components.heads.tolist() == [0] * 4 + [4] * 4 + [8] * 2
    assert (links.capped_buckets, links.largest_bucket) == (1, 10)


def test_no_links_make_no_components(tmp_path: Path) -> None:
    links = links_of(tmp_path, [[1], [2], []])
    assert (components_of(links.left, links.right).count, components_of(links.left, links.right).largest) == (0, 0)
