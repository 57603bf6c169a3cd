"""FLOPs against published budgets and against a count of the compiler's."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from model.flops import PUBLISHED, SIZING, FlopConvention, forward_flops_per_token, model_flops_utilization, train_flops_per_token
from model.parameters import init, init_router_bias
from model.transformer import forward
from tests.model.learner import CHEAP, variant
from tests.model.test_parameters import MODEL_67B


def test_the_67b_budget_is_the_published_one() -> None:
    assert f"{train_flops_per_token(MODEL_67B, 8192) * 10.07e12:.4g}" == "1.692e+23"


def test_the_conventions_differ_as_published() -> None:
    assert f"{train_flops_per_token(MODEL_67B, 8192, PUBLISHED):.3g}" == "1.68e+10"
    assert f"{train_flops_per_token(MODEL_67B, 8192, FlopConvention(windows=False)):.3g}" == "2.04e+10"
    head = 3 * 2 * 2560 * 128_256
    assert train_flops_per_token(MODEL_67B, 8192, SIZING) == train_flops_per_token(MODEL_67B, 8192, FlopConvention(windows=False)) - head


def test_utilization_reproduces_a_published_rate() -> None:
    share = model_flops_utilization(3.12e6, train_flops_per_token(MODEL_67B, 8192), devices=1024, peak_flops_per_s=275e12)
    assert share == pytest.approx(0.186, abs=0.001)


def test_triangles_count_the_keys_each_query_sees() -> None:
    config = variant(window_tokens=3, layers=1, global_every=None)
    rectangle, triangle = (forward_flops_per_token(config, 5, FlopConvention(causal=causal)) for causal in ("rectangle", "triangle"))
    per_key = 4 * config.heads * config.head_dim + 3 * config.heads
    assert rectangle - triangle == pytest.approx((3 - (1 + 2 + 3 + 3 + 3) / 5) * per_key)


def test_gates_are_counted_only_on_request() -> None:
    gated = variant(norm_gate_rank=4, attention_gate=True)
    assert forward_flops_per_token(gated, 16) == forward_flops_per_token(variant(), 16)
    counted = forward_flops_per_token(gated, 16, dataclasses.replace(PUBLISHED, gates=True)) - forward_flops_per_token(gated, 16)
    assert counted == (2 * gated.layers + 2) * 2 * 2 * gated.width * 4 + gated.layers * 2 * gated.width * gated.heads


def test_matmul_flops_are_near_the_compilers_count() -> None:
    tokens = 128
    config = variant(width=64, expert_width=64, experts=2, router_balancing="none", window_tokens=None, rope_layers="all", kernels=CHEAP)
    ids = jnp.zeros((1, tokens), jnp.int32)
    compiled = jax.jit(forward, static_argnums=2).lower(init(config, 0), init_router_bias(config), config, ids, ids).compile()
    counted = forward_flops_per_token(config, tokens, FlopConvention(head=False)) * tokens
    analysis = compiled.cost_analysis()
    assert analysis is not None
    assert analysis["flops"] == pytest.approx(counted, rel=0.25)  # all experts chosen, so dense is exact; the rest is elementwise
