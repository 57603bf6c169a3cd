from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.dispatch.endings import End, Ending
from infra.dispatch.gang import Fallen, declare_fallen, gang_end, has_saved, mark_saved, read_ends, read_fallen, record_end

RETURNED = End(ending=Ending.SUCCEEDED, what="its ranks returned; that counts if rank 0 publishes")
SYMPTOM = End(ending=Ending.PEER_LOST, what="rank 3: the process was killed by SIGABRT")


def end(ending: Ending, steps: int = 1, saved: int = 0, **observations: float) -> End:
    return End(ending=ending, what=f"it {ending.value}", steps=steps, saved=saved, observations=observations)


def test_a_gang_has_succeeded_when_host_0_has_whatever_became_of_the_others():
    ends = {0: end(Ending.SUCCEEDED), 1: end(Ending.CRASHED)}
    assert gang_end(ends, 3, Fallen(host=1, end=ends[1]), end(Ending.PREEMPTED)).ending is Ending.SUCCEEDED


def test_another_hosts_success_is_provisional():
    ends = {0: end(Ending.APPLICATION_ERROR), 1: RETURNED, 2: RETURNED}
    assert gang_end(ends, 3, None, None).ending is Ending.APPLICATION_ERROR


def test_the_engines_positive_word_wins_over_what_the_hosts_made_of_it():
    ends = {0: end(Ending.APPLICATION_ERROR), 1: end(Ending.CRASHED)}
    assert gang_end(ends, 2, Fallen(host=0, end=ends[0]), end(Ending.PREEMPTED)).ending is Ending.PREEMPTED


def test_a_host_that_left_no_record_is_a_lost_node_and_none_at_all_never_started():
    lost = gang_end({0: SYMPTOM, 2: end(Ending.APPLICATION_ERROR)}, 4, Fallen(host=2, end=end(Ending.APPLICATION_ERROR)), None)
    assert (lost.ending, lost.what) == (Ending.NODE_LOST, "hosts 1, 3 of 4 ended without a record")
    assert gang_end({}, 4, None, None).ending is Ending.NEVER_STARTED


def test_whoever_fell_first_is_the_cause():
    ends = {0: end(Ending.APPLICATION_ERROR), 1: end(Ending.STALLED), 2: SYMPTOM}
    found = gang_end(ends, 3, Fallen(host=1, end=ends[1]), None)
    assert (found.ending, found.what) == (Ending.STALLED, "host 1: it stalled")


def test_a_symptom_that_was_declared_first_gives_way_to_a_cause():
    ends = {0: SYMPTOM, 1: end(Ending.APPLICATION_ERROR), 2: end(Ending.CRASHED)}
    assert gang_end(ends, 3, Fallen(host=0, end=SYMPTOM), None).ending is Ending.CRASHED, "a kill is never an answer, an exception may be"
    assert gang_end({0: SYMPTOM, 1: ends[1]}, 2, Fallen(host=0, end=SYMPTOM), None).ending is Ending.APPLICATION_ERROR


def test_where_there_are_only_symptoms_the_first_one_is_told():
    told = gang_end({0: end(Ending.PEER_LOST), 1: SYMPTOM}, 2, Fallen(host=1, end=SYMPTOM), None)
    assert (told.ending, told.what) == (Ending.PEER_LOST, f"host 1: {SYMPTOM.what}")


def test_measures_are_those_of_all_hosts_whoever_names_the_end():
    ends = {
        0: end(Ending.PEER_LOST, steps=9, saved=2, wall_s=10.0, cpu_s=5.0, max_rss_bytes=100.0),
        1: end(Ending.PEER_LOST, steps=7, wall_s=12.0, cpu_s=6.0, max_rss_bytes=300.0),
    }
    found = gang_end(ends, 2, None, End(ending=Ending.PREEMPTED, what="the engine took its nodes"))
    assert (found.ending, found.steps, found.saved) == (Ending.PREEMPTED, 7, 2)
    assert found.observations == {"wall_s": 12.0, "cpu_s": 11.0, "max_rss_bytes": 300.0}


@given(
    st.dictionaries(st.integers(0, 4), st.sampled_from(Ending).map(end)),
    st.none() | st.tuples(st.integers(0, 4), st.sampled_from(sorted(set(Ending) - {Ending.SUCCEEDED})).map(end)),
)
def test_every_gang_has_an_end_and_it_is_a_success_only_if_host_0s_is(ends: dict[int, End], fell: tuple[int, End] | None):
    fallen = Fallen(host=fell[0], end=fell[1]) if fell else None
    found = gang_end(ends, 5, fallen, None)
    assert (found.ending is Ending.SUCCEEDED) == (0 in ends and ends[0].ending is Ending.SUCCEEDED)


def test_the_first_record_of_a_host_and_the_first_fall_stay(tmp_path: Path):
    directory = str(tmp_path)
    assert read_ends(directory, 3) == {}
    assert read_fallen(directory) is None
    record_end(directory, 2, end(Ending.CRASHED))
    record_end(directory, 2, end(Ending.STALLED))
    record_end(directory, 7, end(Ending.STALLED))
    assert read_ends(directory, 3) == {2: end(Ending.CRASHED)}
    assert declare_fallen(directory, 2, end(Ending.CRASHED))
    assert not declare_fallen(directory, 0, SYMPTOM)
    assert read_fallen(directory) == Fallen(host=2, end=end(Ending.CRASHED))


@pytest.mark.parametrize("times", [1, 2])
def test_a_committed_checkpoint_is_remembered(tmp_path: Path, times: int):
    assert not has_saved(str(tmp_path))
    for _ in range(times):
        mark_saved(str(tmp_path))
    assert has_saved(str(tmp_path))


def test_storage_that_refuses_the_mark_of_a_checkpoint_fails_nothing(tmp_path: Path):
    (tmp_path / "attempt").touch()
    mark_saved(str(tmp_path / "attempt"))
