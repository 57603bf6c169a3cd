"""The planted graph of the benchmark, small enough for every day. At 10,000,000 nodes: `tests/benchmarks/components_at_scale.py`."""

import numpy as np
import pytest

from tests.benchmarks.components_at_scale import compare, planted_graph, union_find


@pytest.mark.parametrize("seed", [0, 1])
def test_components_of_stars_chains_and_groups_equal_a_union_find(seed: int) -> None:
    equal, measures = compare(200_000, seed)
    assert equal
    assert measures["largest"] > 5_000
    assert measures["components"] > 10_000


def test_the_union_find_finds_what_a_person_would() -> None:
    left, right = np.array([5, 1, 2, 7]), np.array([1, 0, 3, 7])
    assert union_find(8, left, right).tolist() == [0, 0, 2, 2, 4, 0, 6, 7]


def test_the_planted_graph_has_nodes_without_an_edge_and_long_chains() -> None:
    left, right = planted_graph(50_000, 0)
    degree = np.bincount(np.concatenate([left, right]), minlength=50_000)
    assert (degree == 0).sum() > 10_000
    assert degree.max() > 100
