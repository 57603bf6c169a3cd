"""Batch schedules count tokens in exact integers, forwards and backwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from model.batches import batch_at, sequences_before, steps_for, tokens_before
from model.config import BatchStage, LoaderConfig

HERO = LoaderConfig(batch_sequences=4096, sequence_tokens=8192, batch_stages=(BatchStage(start_step=15_000, batch_sequences=8192),))
THREE = LoaderConfig(
    batch_sequences=2,
    sequence_tokens=4,
    batch_stages=(BatchStage(start_step=3, batch_sequences=5), BatchStage(start_step=7, batch_sequences=1)),
)


def test_the_hero_has_seen_6_342_trillion_tokens_at_step_102_000() -> None:
    assert tokens_before(HERO, 102_000) == 15_000 * 4096 * 8192 + 87_000 * 8192 * 8192
    assert f"{tokens_before(HERO, 102_000):.4g}" == "6.342e+12"
    assert f"{tokens_before(HERO, 157_500):.4g}" == "1.007e+13"
    assert steps_for(HERO, tokens_before(HERO, 102_000)) == 102_000


@given(st.sampled_from([THREE, LoaderConfig(batch_sequences=3, sequence_tokens=4)]), st.integers(min_value=0, max_value=40))
def test_counters_add_up_step_by_step_and_invert(loader: LoaderConfig, step: int) -> None:
    assert sequences_before(loader, step) == sum(batch_at(loader, earlier) for earlier in range(step))
    tokens = tokens_before(loader, step)
    assert steps_for(loader, tokens) == step
    assert steps_for(loader, tokens + 1) == step + 1


def test_stages_that_do_not_ascend_are_refused() -> None:
    stage = BatchStage(start_step=5, batch_sequences=2)
    with pytest.raises(ValidationError, match="batch_stages must begin at ascending steps"):
        LoaderConfig(batch_stages=(stage, stage))
