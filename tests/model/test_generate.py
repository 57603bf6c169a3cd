"""Sampling: what a trained-forward argmax says, reproducibly, and where it stops."""

import jax.numpy as jnp
import numpy as np
import pytest

from model.generate import sample
from model.parameters import Params
from tests.model.learner import CHEAP, bias, hidden_states, variant, weights

CONFIG = variant(kernels=CHEAP)
NO_END = -1


def _sample(prompt: list[int], new: int, temperature: float = 0.0, seed: int = 0, end_id: int = NO_END) -> list[int]:
    return sample(weights(CONFIG), bias(CONFIG), CONFIG, prompt, new, temperature=temperature, seed=seed, end_id=end_id)


def test_cold_samples_are_the_likeliest_continuation() -> None:
    prompt, params = [5, 9, 2], weights(CONFIG)
    row = prompt + _sample(prompt, 6)
    likeliest = _likeliest_next(params, row)
    assert row[3:] == likeliest[2:-1]


def test_equal_seeds_give_equal_samples_and_others_differ() -> None:
    assert _sample([5, 9], 20, temperature=1.0, seed=3) == _sample([5, 9], 20, temperature=1.0, seed=3)
    assert _sample([5, 9], 20, temperature=1.0, seed=3) != _sample([5, 9], 20, temperature=1.0, seed=4)


def test_a_longer_limit_only_continues_a_sample() -> None:
    short, long = _sample([5, 9], 10, temperature=1.0), _sample([5, 9], 40, temperature=1.0)
    assert len(short) == 10
    assert long[:10] == short


def test_sampling_stops_before_the_end_token() -> None:
    free = _sample([5, 9, 2], 12, temperature=1.0, seed=1)
    end_id = free[5]
    assert _sample([5, 9, 2], 12, temperature=1.0, seed=1, end_id=end_id) == free[: free.index(end_id)]


def test_nothing_to_continue_and_a_negative_temperature_are_refused() -> None:
    with pytest.raises(ValueError, match="the prompt is empty"):
        _sample([], 3)
    with pytest.raises(ValueError, match="negative"):
        _sample([1], 3, temperature=-1.0)


def _likeliest_next(params: Params, row: list[int]) -> list[int]:
    tokens = jnp.asarray([row])
    hidden = hidden_states(params, bias(CONFIG), CONFIG, tokens, jnp.zeros_like(tokens))
    return [int(token) for token in np.argmax(hidden[0] @ params["head"], axis=-1)]
