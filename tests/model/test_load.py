"""The released form: what is written is read back, and nothing else is accepted."""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from model.architecture import KernelConfig, ModelConfig
from model.arrays import ArraysMismatchError, decode, encode
from model.export import CONFIG, FIELD_NAMES, WEIGHTS, model_config, release_arrays, release_config
from model.load import load_release, logits, next_token_logits
from model.parameters import Params, init
from model.presets import CPU_KERNELS, demo_model, tiny_model
from model.state import same, to_arrays
from tests.model import reference
from tests.model.learner import variant

EVERYTHING = variant(
    norm_gate_rank=4,
    attention_gate=True,
    exclusive_attention=True,
    partial_key_offset=True,
    convolution_taps=3,
    shared_experts=2,
    latent_width=12,
    layers=4,
    expert_tying_layers=2,
    tied_head=True,
    rope_pairing="interleaved",
)
GATED = tiny_model().model_copy(update={"norm_gate_rank": 4, "attention_gate": True, "exclusive_attention": True, "shared_expert_width": 0})


def written(directory: Path, config: ModelConfig) -> tuple[Params, jax.Array]:
    params, bias = init(config, seed=5), jax.random.normal(jax.random.key(1), (config.layers, config.experts))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / WEIGHTS).write_bytes(encode(release_arrays(to_arrays(params), np.asarray(bias))))
    (directory / CONFIG).write_text(json.dumps(release_config(config, context_tokens=32, end_of_text_id=0, pad_id=1)))
    return params, bias


@pytest.mark.parametrize("config", [tiny_model(), demo_model(), GATED, EVERYTHING], ids=["tiny", "demo", "gated", "everything"])
def test_every_field_of_the_model_survives_the_published_spelling(config: ModelConfig) -> None:
    released = json.loads(json.dumps(release_config(config, context_tokens=32, end_of_text_id=0, pad_id=1)))
    assert model_config(released) == config


def test_published_field_names_are_fields_of_the_model_and_used_once() -> None:
    assert set(FIELD_NAMES) <= set(ModelConfig.model_fields)
    names = [FIELD_NAMES.get(name, name) for name in ModelConfig.model_fields]
    assert len(names) == len(set(names))


def test_the_released_config_uses_the_names_that_other_tools_expect() -> None:
    released = release_config(demo_model(), context_tokens=512, end_of_text_id=0, pad_id=1)
    assert {name: released[name] for name in ("model_type", "schema_version", "num_experts", "num_experts_per_tok", "hidden_size")} == {
        "model_type": "seaway_moe",
        "schema_version": 2,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "hidden_size": 128,
    }
    assert released["moe_intermediate_size"] == 128
    assert released["layer_types"] == ["sliding_attention"] * 3 + ["full_attention"]
    assert released["max_position_embeddings"] == 512


@pytest.mark.parametrize("config", [tiny_model(), GATED, EVERYTHING], ids=["tiny", "gated", "everything"])
def test_an_independent_loader_gets_the_same_logits_from_the_folder_alone(tmp_path: Path, config: ModelConfig) -> None:
    written(tmp_path, config)
    tokens = np.random.default_rng(2).integers(0, config.vocab_size, (2, 24))
    arrays = load_file(tmp_path / WEIGHTS)
    params: dict[str, Any] = {}
    for name, array in arrays.items():
        *path, leaf = name.split("/")
        functools.reduce(lambda node, part: node.setdefault(part, {}), path, params)[leaf] = array
    described = model_config(json.loads((tmp_path / CONFIG).read_text()))
    hidden = reference.hidden_states(params, params["router_bias"], described, tokens, np.zeros_like(tokens))
    theirs = hidden @ (params["embedding"].T if described.tied_head else params["head"])
    ours = logits(load_release(tmp_path), jnp.asarray(tokens))
    assert np.max(np.abs(ours - theirs)) < 1e-5  # float32 against float64


@pytest.mark.parametrize("config", [tiny_model(), GATED], ids=["tiny", "gated"])
def test_loaded_weights_give_the_same_bits_of_logits(tmp_path: Path, config: ModelConfig) -> None:
    params, bias = written(tmp_path, config)
    release = load_release(tmp_path)
    tokens = jax.random.randint(jax.random.key(2), (2, 24), 0, config.vocab_size)
    assert same(logits(release, tokens), next_token_logits(params, bias, config, tokens, jnp.zeros_like(tokens)))
    assert same(release.router_bias, bias)


def test_the_router_bias_decides_logits_so_a_release_without_it_is_refused(tmp_path: Path) -> None:
    written(tmp_path, tiny_model())
    release = load_release(tmp_path)
    tokens = jax.random.randint(jax.random.key(2), (1, 24), 0, 64)
    unbiased = type(release)(release.params, jnp.zeros_like(release.router_bias), release.config)
    assert not same(logits(release, tokens), logits(unbiased, tokens))
    arrays = decode((tmp_path / WEIGHTS).read_bytes())
    del arrays["router_bias"]
    (tmp_path / WEIGHTS).write_bytes(encode(arrays))
    with pytest.raises(ArraysMismatchError, match="missing router_bias"):
        load_release(tmp_path)


def test_other_kernels_compute_the_same_model(tmp_path: Path) -> None:
    written(tmp_path, tiny_model())
    dense = load_release(tmp_path, kernels=CPU_KERNELS.model_copy(update={"moe_backend": "dense", "attention_backend": "plain"}))
    tokens = jax.random.randint(jax.random.key(2), (1, 24), 0, 64)
    assert isinstance(dense.config.kernels, KernelConfig)
    np.testing.assert_allclose(logits(dense, tokens), logits(load_release(tmp_path), tokens), atol=2e-5)


def test_another_architecture_or_schema_is_refused() -> None:
    released = release_config(tiny_model(), context_tokens=32, end_of_text_id=0, pad_id=1)
    with pytest.raises(ValueError, match="describes 'llama'"):
        model_config({**released, "model_type": "llama"})
    with pytest.raises(ValueError, match="schema 3"):
        model_config({**released, "schema_version": 3})
