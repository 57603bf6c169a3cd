import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.supervise.clocks import Clocks, sentence


def clocks(start: float = 100.0, step: float = 10.0, wall: float | None = None) -> Clocks:
    return Clocks(start_grace_s=start, step_s=step, wall_s=wall, started_s=1000.0)


def test_the_start_up_grace_is_long_and_ends_at_the_first_step():
    assert clocks().expired(1099.9) is None
    assert clocks().expired(1100.0) == "start"
    stepped = clocks().stepped(1005.0)
    assert stepped.expired(1014.9) is None
    assert stepped.expired(1015.0) == "step"


def test_a_hang_soon_after_the_first_step_does_not_enjoy_the_rest_of_the_grace():
    assert clocks(start=3600.0).stepped(1043.0).next_deadline_s() == 1053.0


def test_steps_push_the_step_clock_and_never_the_wall():
    running = clocks(wall=50.0)
    for second in range(49):
        running = running.stepped(1000.0 + second)
    assert running.expired(1049.9) is None
    assert running.expired(1050.0) == "wall"


def test_of_two_expired_clocks_the_earlier_one_is_named():
    assert clocks(start=30.0, wall=20.0).expired(2000.0) == "wall"
    assert clocks(start=20.0, wall=30.0).expired(2000.0) == "start"


@given(
    steps=st.lists(st.floats(0, 1e4), max_size=20).map(sorted),
    after=st.floats(0, 1e4),
    limits=st.tuples(st.floats(0.1, 1e4), st.floats(0.1, 1e4), st.none() | st.floats(0.1, 1e4)),
)
def test_something_is_expired_exactly_from_the_next_deadline_on(
    steps: list[float], after: float, limits: tuple[float, float, float | None]
):
    running = Clocks(*limits, started_s=0.0)
    for step in steps:
        running = running.stepped(step)
    now = (steps[-1] if steps else 0.0) + after
    assert (running.expired(now) is not None) == (now >= running.next_deadline_s())


@pytest.mark.parametrize(("which", "knob"), [("start", "start_grace_s"), ("step", "step_s"), ("wall", "wall_s")])
def test_the_sentence_names_the_knob(which: str, knob: str):
    assert f"timeouts.{knob}" in sentence(which, clocks(wall=5.0))  # type: ignore[arg-type]
