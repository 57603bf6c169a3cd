"""Decoding a few tokens at a time equals the full forward pass, whatever the model and however the text is cut."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from model.architecture import ModelConfig
from model.cache import cache_bytes, empty_cache
from model.decode import read_on
from model.generate import sample, sample_batch
from model.load import next_token_logits
from tests.model.learner import CHEAP, bias, variant, weights

EVERYTHING: dict[str, Any] = {
    "norm_gate_rank": 4,
    "attention_gate": True,
    "exclusive_attention": True,
    "partial_key_offset": True,
    "convolution_taps": 4,
    "shared_experts": 2,
    "latent_width": 12,
    "layers": 4,
    "expert_tying_layers": 2,
}
TEXTS = (21, 13)  # both longer than the window of 8


@pytest.mark.parametrize(
    "changes",
    [{}, EVERYTHING, {"tied_head": True, "rope_pairing": "interleaved", "global_every": None, "capacity_factor": 0.5}],
    ids=["plain", "everything", "windows alone, trained under a capacity"],
)
def test_logits_of_every_step_equal_those_of_the_full_forward_pass(changes: dict[str, Any]) -> None:
    config = variant(**changes, kernels=CHEAP)
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, config.vocab_size, length) for length in TEXTS]
    expected = [_full(config, text) for text in texts]
    read = jax.jit(lambda tokens, positions, cache: read_on(weights(config), bias(config), config, tokens, positions, cache))
    cache = empty_cache(config, len(texts), max(TEXTS))
    first = 5  # tokens of the shorter text that are read at once; the longer one reads as many more as it is longer
    head = np.stack([np.concatenate([np.zeros(max(TEXTS) - len(text), int), text])[: max(TEXTS) - min(TEXTS) + first] for text in texts])
    places = np.arange(head.shape[1]) - np.array([[max(TEXTS) - len(text)] for text in texts])
    logits, cache = read(jnp.asarray(head), jnp.asarray(places, jnp.int32), cache)
    for step in range(min(TEXTS) - first + 1):
        at = [len(text) - min(TEXTS) + first - 1 + step for text in texts]
        for row in range(len(texts)):
            np.testing.assert_allclose(logits[row], expected[row][at[row]], atol=5e-5)  # float32 sums in another order
        if step < min(TEXTS) - first:
            tokens = jnp.asarray([[text[place + 1]] for text, place in zip(texts, at, strict=True)])
            logits, cache = read(tokens, jnp.asarray([[place + 1] for place in at], jnp.int32), cache)


def test_a_windowed_layer_remembers_its_window_and_no_more() -> None:
    config = variant(layers=4, global_every=2, window_tokens=8)
    rooms = [layer.attention.keys.shape[1] for layer in empty_cache(config, 1, 100)]
    assert rooms == [8, 100, 8, 100]
    assert cache_bytes(config, 3, 100) == 3 * 2 * (8 + 100 + 8 + 100) * config.kv_heads * config.head_dim * 4


def test_prompts_side_by_side_continue_as_each_alone() -> None:
    config = variant(kernels=CHEAP)
    prompts, settings = [[5, 9, 2], [7], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]], {"temperature": 1.0, "end_id": -1}
    together = sample_batch(weights(config), bias(config), config, prompts, 12, seeds=[0, 1, 2], **settings)
    alone = [sample(weights(config), bias(config), config, prompt, 12, seed=seed, **settings) for seed, prompt in enumerate(prompts)]
    assert together == alone
    assert len({tuple(row) for row in together}) == 3


def test_each_prompt_needs_a_seed_of_its_own() -> None:
    config = variant(kernels=CHEAP)
    with pytest.raises(ValueError, match="1 seeds for 2 prompts"):
        sample_batch(weights(config), bias(config), config, [[1], [2]], 3, temperature=0.0, seeds=[0], end_id=0)


def _full(config: ModelConfig, text: Any) -> Array:
    tokens = jnp.asarray(text)[None]
    found: Array = next_token_logits(weights(config), bias(config), config.dropless, tokens, jnp.zeros_like(tokens))[0]
    return found
