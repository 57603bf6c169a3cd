"""Continuous batching: each text becomes what it would have become alone, whoever joins and leaves beside it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from model.architecture import ModelConfig
from model.generate import sample
from model.serving.slots import Drawn, Slots, draw, free_slots, join, leave, step, width_for
from tests.model.learner import variant
from tests.model.speaker import CONTEXT_TOKENS, SPEAKER, bias, weights

ROOM_TOKENS = CONTEXT_TOKENS
EVERYTHING = variant(
    kernels={"moe_backend": "blocked", "moe_block_rows": 16, "attention_backend": "plain"},
    norm_gate_rank=4,
    attention_gate=True,
    partial_key_offset=True,
    convolution_taps=3,
    latent_width=12,
)
PROMPTS = [[5, 9, 2], [7], list(range(3, 40)), [11, 4, 4, 60, 2, 8]]


class Hall:
    """Slots, and what was drawn for whom."""

    def __init__(self, config: ModelConfig, slots: int = 3) -> None:
        self.config = config
        self.state: Slots = free_slots(config, slots, ROOM_TOKENS)
        self.drawn: list[tuple[NDArray[np.int32], NDArray[np.float32]]] = []

    def join(self, slot: int, prompt: list[int], *, seed: int = 0, temperature: float = 0.0, top_p: float = 1.0) -> None:
        width = width_for(len(prompt), ROOM_TOKENS)
        tokens = np.zeros(width, np.int32)
        tokens[width - len(prompt) :] = prompt
        positions = np.arange(width, dtype=np.int32) - (width - len(prompt))
        self.state = join(
            weights(self.config),
            bias(self.config),
            self.config,
            ROOM_TOKENS,
            self.state,
            jnp.int32(slot),
            jnp.asarray(tokens),
            jnp.asarray(positions),
            jnp.uint32(seed),
            jnp.float32(temperature),
            jnp.float32(top_p),
        )

    def leave(self, slot: int) -> None:
        self.state = self.state._replace(positions=leave(self.state.positions, jnp.int32(slot)))

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.state, found = step(weights(self.config), bias(self.config), self.config, self.state)
            drawn: Drawn = jax.device_get(found)
            self.drawn.append((drawn.tokens, drawn.logprobs))

    def text(self, slot: int, begin: int = 0) -> list[int]:
        return [int(tokens[slot]) for tokens, _ in self.drawn[begin:]]

    def logprobs(self, slot: int, begin: int = 0) -> list[float]:
        return [float(logprobs[slot]) for _, logprobs in self.drawn[begin:]]


def alone(config: ModelConfig, prompt: list[int], new: int, temperature: float = 0.0, seed: int = 0) -> list[int]:
    return sample(weights(config), bias(config), config, prompt, new, temperature=temperature, seed=seed, end_id=-1)


@pytest.mark.parametrize("config", [SPEAKER, EVERYTHING], ids=["speaker", "everything"])
def test_texts_that_join_and_leave_at_any_time_become_what_the_generator_makes_of_each(config: ModelConfig) -> None:
    hall = Hall(config)
    hall.join(0, PROMPTS[0])
    hall.step(2)
    hall.join(1, PROMPTS[2], temperature=1.0, seed=3)
    hall.step(3)
    hall.leave(0)
    hall.step(1)
    hall.join(0, PROMPTS[3], temperature=0.7, seed=8)
    hall.step(9)
    assert hall.text(0)[:5] == alone(config, PROMPTS[0], 5)
    assert hall.text(1, 2) == alone(config, PROMPTS[2], 13, temperature=1.0, seed=3)
    assert hall.text(0, 6) == alone(config, PROMPTS[3], 9, temperature=0.7, seed=8)


def test_neighbours_change_no_bit_of_a_text() -> None:
    quiet, busy = Hall(SPEAKER), Hall(SPEAKER)
    quiet.join(1, PROMPTS[0], temperature=1.0, seed=5)
    quiet.step(8)
    busy.join(2, PROMPTS[2], temperature=1.0, seed=1)
    busy.step(3)
    busy.join(1, PROMPTS[0], temperature=1.0, seed=5)
    busy.join(0, PROMPTS[1], top_p=0.5, temperature=2.0)
    busy.step(8)
    assert busy.text(1, 3) == quiet.text(1)
    assert busy.logprobs(1, 3) == quiet.logprobs(1)


def test_log_probabilities_are_those_of_the_models_own_distribution() -> None:
    hall = Hall(SPEAKER)
    hall.join(0, PROMPTS[0], temperature=0.3, seed=2, top_p=0.8)
    logits = np.asarray(hall.state.logits[0], np.float64)
    hall.step()
    expected = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    assert hall.logprobs(0)[0] == pytest.approx(expected[hall.text(0)[0]], abs=1e-5)


def test_a_nucleus_is_the_fewest_likeliest_tokens_that_come_to_its_share() -> None:
    rows, vocabulary, share = 400, 12, 0.7
    logits = np.random.default_rng(0).normal(0, 1.5, vocabulary).astype(np.float32)
    probabilities = np.exp(logits) / np.exp(logits).sum()
    order = np.argsort(-probabilities)
    nucleus = set(order[: np.searchsorted(np.cumsum(probabilities[order]), share) + 1].tolist())
    keys = jax.random.split(jax.random.key(1), rows)
    top_ps = np.where(np.arange(rows) % 2 == 0, share, 1.0).astype(np.float32)
    drawn = np.asarray(draw(jnp.tile(logits, (rows, 1)), keys, jnp.ones(rows), jnp.asarray(top_ps)))
    assert set(drawn[::2].tolist()) == nucleus
    assert set(drawn[1::2].tolist()) > nucleus, "rows of top_p = 1 draw from all"
    free = np.asarray(draw(jnp.tile(logits, (rows, 1)), keys, jnp.ones(rows), jnp.ones(rows)))
    assert np.array_equal(drawn[1::2], free[1::2]), "a neighbour's nucleus changes nothing"


def test_widths_double_and_stay_in_the_room() -> None:
    assert [width_for(tokens, 200) for tokens in (1, 64, 65, 128, 129, 200)] == [64, 64, 128, 128, 200, 200]
