"""The declared leaves: what is drawn, counted and refused."""

from typing import Any

import jax
import numpy as np
import pytest

from model.architecture import ModelConfig
from model.leaf import Leaf
from model.parameters import Params, count, declare, init, init_router_bias
from tests.model.learner import variant

# Shapes of models whose counts are published (Grug MoE, 2026).
MODEL_67B = ModelConfig(
    vocab_size=128_256,
    width=2560,
    layers=26,
    heads=20,
    kv_heads=5,
    head_dim=128,
    experts=256,
    experts_per_token=4,
    expert_width=1280,
    shared_expert_width=2560,
    norm_gate_rank=128,
)
MODEL_360B = ModelConfig(
    vocab_size=128_256,
    width=6144,
    layers=48,
    heads=48,
    kv_heads=12,
    head_dim=128,
    experts=128,
    experts_per_token=4,
    expert_width=3072,
    shared_expert_width=2 * 3072,
    norm_gate_rank=128,
    attention_gate=True,
    exclusive_attention=True,
)


def test_counts_equal_the_published_ones() -> None:
    assert f"{count(MODEL_67B).total:.4g}" == "6.708e+10"
    assert f"{count(MODEL_67B).active:.4g}" == "2.012e+09"
    assert f"{count(MODEL_360B).total:.5g}" == "3.5964e+11"
    assert f"{count(MODEL_360B).active_with_vocabulary:.4g}" == "2.262e+10"


@pytest.mark.parametrize("config", [variant(), variant(norm_gate_rank=4, attention_gate=True, shared_expert_width=0)])
def test_drawn_arrays_are_the_declared_and_counted_ones(config: ModelConfig) -> None:
    leaves, params = declare(config), init(config, 3)
    assert jax.tree.map(lambda leaf: leaf.shape, leaves) == jax.tree.map(lambda array: array.shape, params)
    assert sum(array.size for array in jax.tree.leaves(params)) == count(config).total
    assert {str(array.dtype) for array in jax.tree.leaves(params)} == {"float32"}
    assert init_router_bias(config).shape == (config.layers, config.experts)


def test_names_are_the_paths_of_the_tree() -> None:
    for path, leaf in jax.tree_util.tree_flatten_with_path(declare(variant(norm_gate_rank=4, attention_gate=True)))[0]:
        assert jax.tree_util.keystr(path, simple=True, separator="/") == leaf.name


def test_matrices_start_truncated_normal_with_the_declared_deviation() -> None:
    config = variant(width=64, init_scale=0.5)
    params = init(config, 0)
    experts = np.asarray(params["layers"]["moe"]["expert_up"])
    assert np.std(experts) == pytest.approx(0.5 / 8, rel=0.03)  # 8,192 draws
    assert np.max(np.abs(experts)) <= 3.05 * 0.5 / 8
    assert np.all(np.asarray(params["final_norm"]["gain"]) == 1)


def test_a_draw_depends_on_seed_and_leaf_alone() -> None:
    first, again, other_seed = init(variant(), 5), init(variant(), 5), init(variant(), 6)
    more_leaves = init(variant(norm_gate_rank=4, attention_gate=True), 5)
    query = ("layers", "attention", "query")
    assert np.array_equal(_at(first, *query), _at(again, *query))
    assert np.array_equal(_at(first, *query), _at(more_leaves, *query))
    assert not np.array_equal(_at(first, *query), _at(other_seed, *query))
    assert not np.array_equal(_at(first, "layers", "attention", "key"), _at(first, "layers", "attention", "value"))


def test_a_matrix_without_axes_and_a_zero_matrix_are_refused_for_muon() -> None:
    with pytest.raises(ValueError, match="declare matrix_axes"):
        Leaf("gain", (4,), None, "matrix", "ones", 0.0, "trunk", (None,))
    with pytest.raises(ValueError, match="no direction to turn"):
        Leaf("gate", (4, 4), (0, 1), "matrix", "zeros", 0.0, "trunk", (None, None))


def _at(params: Params, *path: str) -> Any:
    found: Any = params
    for name in path:
        found = found[name]
    return found
