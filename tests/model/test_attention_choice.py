"""Attention by probe: what works here is found out, wrong answers are refused, and the decision is told."""

import logging
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array

from model import attention_choice
from model.attention import attend
from model.attention_choice import probe, settled
from tests.model.learner import CHEAP, variant


def test_a_cpu_takes_the_triangle_and_says_so_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="model.attention_choice"):
        model, decision = settled(variant(kernels={"attention_backend": "probe", "attention_block_tokens": 16}), 32)
    assert decision.backend == model.kernels.attention_backend == "triangle"
    assert [record.getMessage() for record in caplog.records] == ["attention on cpu: triangle; triangle agrees with plain on 32 tokens"]


def test_a_config_that_names_a_back_end_gets_it() -> None:
    model = variant(kernels=CHEAP)
    assert settled(model, 32) == (model, ("plain", "the config names it"))


def test_kernels_of_other_devices_are_refused_with_what_they_said() -> None:
    decision = probe(variant(), 32, ("cudnn", "splash", "library"))
    assert decision.backend == "library"
    assert decision.why.startswith("cudnn fails (")
    assert "splash fails (" in decision.why
    assert decision.why.endswith("library agrees with plain on 32 tokens")


def test_a_back_end_that_forgets_the_window_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(q: Array, k: Array, v: Array, ids: Array, config: Any, *, window: int | None) -> Array:
        return attend(q, k, v, ids, config, window=None if config.kernels.attention_backend == "library" else window)

    monkeypatch.setattr(attention_choice, "attend", forgetful)
    with pytest.raises(ValueError, match=r"no attention back end works on cpu: library differs from plain by .*\(window 8\)"):
        probe(variant(qk_scale=1.25), 32, ("library",))


def test_a_model_that_nobody_settled_is_refused_before_it_is_traced() -> None:
    model = variant(kernels={"attention_backend": "probe"})
    x = jax.ShapeDtypeStruct((1, 8, 4, 8), jnp.float32)
    kv, ids = jax.ShapeDtypeStruct((1, 8, 2, 8), jnp.float32), jax.ShapeDtypeStruct((1, 8), jnp.int32)
    with pytest.raises(ValueError, match=r"settled before a model is traced"):
        jax.eval_shape(lambda q, k, v, ids: attend(q, k, v, ids, model, window=None), x, kv, kv, ids)
