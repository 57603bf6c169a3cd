"""Learning rates over steps and across a branch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.config import ScheduleConfig
from model.schedule import branch_schedule, learning_rate

LINEAR = ScheduleConfig(schedule_steps=100, warmup_steps=10, floor_share=0.05)
ROOT = ScheduleConfig(kind="wsd", schedule_steps=100, warmup_steps=10, decay_steps=20, decay_shape="one_minus_sqrt", floor_share=0.1)
PLATEAU = ScheduleConfig(kind="wsd", schedule_steps=100, warmup_steps=10, decay_steps=20, floor_share=0.1)


def _shares(schedule: ScheduleConfig, steps: range) -> list[float]:
    return [learning_rate(schedule, step) for step in steps]


def test_linear_climbs_to_the_peak_and_ends_exactly_on_the_floor() -> None:
    shares = _shares(LINEAR, range(100))
    assert shares[0] == pytest.approx(0.1)  # the first update already moves
    assert shares[9] == 1.0
    assert shares[99] == 0.05
    np.testing.assert_allclose(np.diff(shares[:10]), 0.1)
    np.testing.assert_allclose(np.diff(shares[9:]), -0.95 / 90)
    assert learning_rate(LINEAR, 1000) == 0.05


def test_wsd_stays_at_the_peak_until_its_decay() -> None:
    shares = _shares(PLATEAU, range(100))
    assert set(shares[9:80]) == {1.0}
    assert shares[80] < 1.0
    assert shares[99] == 0.1
    np.testing.assert_allclose(np.diff(shares[79:]), -0.9 / 20)


def test_a_root_decay_leaves_the_plateau_steeply_and_ends_exactly_on_the_floor() -> None:
    shares = _shares(ROOT, range(100))
    assert set(shares[9:80]) == {1.0}
    assert shares[99] == 0.1
    expected = [0.1 + 0.9 * (1 - np.sqrt((step - 79) / 20)) for step in range(80, 100)]
    np.testing.assert_allclose(shares[80:], expected, atol=1e-12)
    assert learning_rate(ROOT, 1000) == 0.1


@pytest.mark.parametrize("schedule", [LINEAR, PLATEAU, ROOT, ScheduleConfig(schedule_steps=1), ScheduleConfig(schedule_steps=7)])
def test_traced_and_python_steps_agree(schedule: ScheduleConfig) -> None:
    traced = jax.jit(jax.vmap(lambda step: learning_rate(schedule, step)))(jnp.arange(120))
    np.testing.assert_allclose(traced, _shares(schedule, range(120)), rtol=3e-6)  # float32 against float64, places on the schedule included


@given(st.sampled_from([LINEAR, PLATEAU]), st.integers(min_value=10, max_value=95), st.integers(min_value=2, max_value=50))
def test_a_cooldown_joins_its_parent_exactly_and_falls_to_its_floor(parent: ScheduleConfig, branch_step: int, cooldown_steps: int) -> None:
    cooldown = branch_schedule(parent, branch_step, cooldown_steps)
    shares = _shares(cooldown, range(branch_step, branch_step + cooldown_steps))
    assert shares[0] == learning_rate(parent, branch_step)
    assert shares[-1] == parent.floor_share
    np.testing.assert_allclose(np.diff(shares), (shares[-1] - shares[0]) / (cooldown_steps - 1), atol=1e-12)


def test_a_root_cooldown_joins_its_parent_exactly() -> None:
    cooldown = branch_schedule(LINEAR, 40, 20, floor_share=0.0, decay_shape="one_minus_sqrt")
    assert learning_rate(cooldown, 40) == learning_rate(LINEAR, 40)
    assert learning_rate(cooldown, 59) == 0.0
    assert learning_rate(cooldown, 41) < learning_rate(branch_schedule(LINEAR, 40, 20, floor_share=0.0), 41)


def test_a_cooldown_after_a_grown_batch_joins_the_grown_rate() -> None:
    cooldown = branch_schedule(LINEAR, 40, 20, batch_factor=np.sqrt(2))
    assert learning_rate(cooldown, 40) == learning_rate(LINEAR, 40) * np.sqrt(2)
    assert learning_rate(cooldown, 59) == 0.05 * np.sqrt(2)


def test_a_cooldown_can_branch_again_and_change_its_floor() -> None:
    first = branch_schedule(LINEAR, 40, 20)
    second = branch_schedule(first, 50, 10, floor_share=0.0)
    assert learning_rate(second, 50) == learning_rate(first, 50)
    assert learning_rate(second, 59) == 0.0
