"""Real gangs on this machine: processes that meet, compute together, lose one another and go on."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.artifacts.lease import attempts
from infra.artifacts.program import Program
from infra.artifacts.store import ArtifactStore
from infra.dispatch.budgets import Budgets
from infra.dispatch.dispatcher import Dispatcher, JobFailed
from infra.dispatch.endings import Ending
from infra.dispatch.engines.local import LocalBackend
from infra.dispatch.job import GIB, Job, Resources, Timeouts, attempt_directory
from infra.dispatch.messages import Message
from tests.infra.dispatch.builders import job_of
from tests.infra.dispatch.gang_programs import GangConfig, expected_total, jax_march, march
from tests.infra.dispatch.running import Running

pytestmark = pytest.mark.faults

# A step takes milliseconds; what a clock needs is to be far above that on a busy machine.
PATIENT = Timeouts(start_grace_s=120, step_s=60, kill_grace_s=2, lease_beat_s=1)
WATCHFUL = Timeouts(start_grace_s=120, step_s=4, kill_grace_s=0.5, lease_beat_s=1)


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.fixture
def gang(store: ArtifactStore, marks: Path) -> Callable[..., Job]:
    """Makes the job of a gang."""

    def make(built: Program = march, ranks: int = 3, timeouts: Timeouts = PATIENT, memory_bytes: int = 4 * GIB, **config: object) -> Job:
        return job_of(
            store,
            built,
            GangConfig(marks=str(marks), **config),  # type: ignore[arg-type]
            asset=f"gang-{ranks}",
            timeouts=timeouts,
            resources=Resources(device=f"cpux{ranks}", memory_bytes=memory_bytes, env={"JAX_PLATFORMS": "cpu"}),
        )

    return make


@pytest.fixture
def strict(store: ArtifactStore, tmp_path: Path, dispatcher: Dispatcher) -> Dispatcher:
    """A dispatcher that gives up at the first loss that is not a warm restart. (`dispatcher` waits for each process's end.)"""
    return Dispatcher(store, LocalBackend(tmp_path / "state"), Budgets(infrastructure=0))


def log_of(tmp_path: Path, number: int = 1) -> str:
    return next((tmp_path / "state").glob(f"*-a{number}")).joinpath("log.txt").read_text()


def end_of(tmp_path: Path, number: int = 1) -> dict[str, object]:
    return json.loads(next((tmp_path / "state").glob(f"*-a{number}")).joinpath("ended.json").read_text())


def test_a_gang_computes_together_and_rank_0_publishes_and_speaks(
    dispatcher: Dispatcher, gang: Callable[..., Job], marks: Path, tmp_path: Path
):
    messages: list[Message] = []
    job = gang(ranks=3)
    outcome = dispatcher.run(job, on_message=messages.append)
    assert outcome.artifact.read_json("result.json") == {"total": expected_total(GangConfig(), 3)}
    directory = attempt_directory(job.address, 1)
    assert sorted((marks / "ranks.txt").read_text().splitlines()) == [f"{r} of 3, {r} of 3, in {directory}" for r in range(3)]
    assert sum(message.method == "opened" for message in messages) == 1
    end = end_of(tmp_path)
    assert (end["ending"], end["steps"], end["saved"]) == ("succeeded", end["steps"], 3)
    assert 1 <= int(str(end["steps"])) <= 6


def test_each_line_of_a_gangs_log_says_which_rank_printed_it(dispatcher: Dispatcher, gang: Callable[..., Job], tmp_path: Path):
    dispatcher.run(gang(ranks=3))
    told = re.findall(r"^\[(\d)\] pid \d+ is rank (\d)$", log_of(tmp_path), re.MULTILINE)
    assert sorted(told) == [("0", "0"), ("1", "1"), ("2", "2")]


@pytest.mark.parametrize(
    ("fault", "ending", "what"),
    [
        ("kill", Ending.CRASHED, "rank 1: the process was killed by SIGKILL"),
        ("raise", Ending.APPLICATION_ERROR, "rank 1: KeyError"),
        ("die_slowly", Ending.CRASHED, "rank 1: the process was killed by SIGSEGV"),
        ("leave", Ending.PEER_LOST, "rank 0: ConnectionResetError: the peer is gone; rank 1 had returned before"),
    ],
)
def test_one_rank_that_falls_ends_all_and_is_named_as_the_cause(
    strict: Dispatcher, gang: Callable[..., Job], tmp_path: Path, fault: str, ending: Ending, what: str
):
    with pytest.raises(JobFailed) as failed:
        strict.run(gang(fault=fault, fault_step=1, once=False))
    assert failed.value.ending is ending
    assert what in failed.value.what


def test_a_killed_rank_costs_nothing_once_a_checkpoint_is_committed(
    strict: Dispatcher, gang: Callable[..., Job], store: ArtifactStore, tmp_path: Path
):
    job = gang(fault="kill", fault_step=3)
    outcome = strict.run(job)
    assert [record.ended for record in attempts(job.address)] == ["crashed", "succeeded"]
    assert end_of(tmp_path)["saved"] == 1
    assert "goes on from step 2" in log_of(tmp_path, 2)
    assert outcome.artifact.read_json("result.json") == {"total": expected_total(GangConfig(), 3)}


def test_a_rank_that_makes_no_step_is_stalled_though_others_go_on(strict: Dispatcher, gang: Callable[..., Job]):
    with pytest.raises(JobFailed, match="rank 1: no step was completed for 4 s") as failed:
        strict.run(gang(fault="spin", fault_step=1, once=False, timeouts=WATCHFUL, steps=10_000, pace_s=0.1, saved_every=10_000))
    assert failed.value.ending is Ending.STALLED


def test_ranks_that_wait_for_a_stuck_one_are_silent_with_it_and_all_show_where(
    strict: Dispatcher, gang: Callable[..., Job], tmp_path: Path
):
    with pytest.raises(JobFailed) as failed:
        strict.run(gang(fault="spin", fault_step=1, once=False, timeouts=WATCHFUL))
    assert failed.value.ending is Ending.STALLED
    assert failed.value.what == "ranks 0, 1, 2: no step was completed for 4 s (timeouts.step_s)"
    log = log_of(tmp_path)
    assert "spin_for_ever" in "\n".join(line for line in log.splitlines() if line.startswith("[1]")), "the stack of the stuck rank"
    for rank in (0, 2):
        assert "sum_of" in "\n".join(line for line in log.splitlines() if line.startswith(f"[{rank}]")), "and of those that wait for it"


def test_a_slow_first_step_and_a_slow_checkpoint_are_no_stalls(strict: Dispatcher, gang: Callable[..., Job]):
    timeouts = WATCHFUL.model_copy(update={"step_s": 3.5})
    assert strict.run(gang(ranks=2, fault="slow_start", fault_step=0, timeouts=timeouts)).attempts == 1
    assert strict.run(gang(ranks=2, steps=4, fault="slow_save", timeouts=timeouts)).attempts == 1


def test_ranks_that_linger_after_publication_get_the_grace_and_no_more(strict: Dispatcher, gang: Callable[..., Job], tmp_path: Path):
    outcome = strict.run(gang(ranks=2, fault="withdraw", fault_step=6))
    assert outcome.attempts == 1
    assert "2 s later that had not returned" in log_of(tmp_path)


def test_a_gang_that_never_meets_is_an_infrastructure_loss(strict: Dispatcher, gang: Callable[..., Job]):
    with pytest.raises(JobFailed) as failed:
        strict.run(
            gang(
                ranks=2, fault="withdraw", fault_rank=0, fault_step=-1, once=False, timeouts=PATIENT.model_copy(update={"start_grace_s": 4})
            )
        )
    assert failed.value.ending is Ending.STALLED


def test_a_gang_whose_port_was_taken_costs_infrastructure_and_the_next_attempt_picks_another(
    dispatcher: Dispatcher, gang: Callable[..., Job]
):
    job = gang(ranks=2, fault="steal_port")
    outcome = dispatcher.run(job)
    assert outcome.artifact.read_json("result.json") == {"total": expected_total(GangConfig(), 2)}
    assert [record.ended for record in attempts(job.address)] == ["rendezvous_failed", "succeeded"]
    ports = [Path(attempt_directory(job.address, number), "coordinator").read_text() for number in (1, 2)]
    assert ports[0] != ports[1], "the stale name of the first attempt is still there and met by nobody"


def test_more_memory_than_the_job_asked_for_ends_it_and_names_the_knob(strict: Dispatcher, gang: Callable[..., Job]):
    with pytest.raises(JobFailed, match=r"resources\.memory_bytes allows 0\.29 GiB") as failed:
        strict.run(gang(ranks=2, fault="hoard", fault_step=1, memory_bytes=150 * 1024**2))
    assert failed.value.ending is Ending.OUT_OF_MEMORY


def test_two_gangs_at_once_finish_and_never_share_a_port(store: ArtifactStore, dispatcher: Dispatcher, gang: Callable[..., Job]):
    jobs = [gang(ranks=ranks, steps=steps) for ranks, steps in ((2, 5), (3, 5))]
    running = [Running(dispatcher, job) for job in jobs]
    for job, ranks, one in zip(jobs, (2, 3), running, strict=True):
        assert one.result().artifact.read_json("result.json") == {"total": expected_total(GangConfig(steps=5), ranks)}
        assert attempts(job.address)[-1].token == 1
    ports = [Path(attempt_directory(job.address, 1), "coordinator").read_text() for job in jobs]
    assert len(set(ports)) == 2


@pytest.mark.parametrize(
    ("fault", "ranks", "ended", "shown"),
    [
        ("stop", 2, "stalled", "can't show its stack: stopped"),
        ("spin", 2, "stalled", "spin_for_ever"),
        ("withdraw", 3, "stalled", "withdraw_from_the_collective"),
        ("kill_supervisor", 2, "supervisor_lost", "is rank 1"),
    ],
)
def test_a_jax_gang_that_loses_a_rank_goes_on_from_its_newest_checkpoint(
    strict: Dispatcher, gang: Callable[..., Job], marks: Path, tmp_path: Path, fault: str, ranks: int, ended: str, shown: str
):
    timeouts = WATCHFUL.model_copy(update={"step_s": 8.0})
    job = gang(jax_march, ranks=ranks, timeouts=timeouts, fault=fault)
    outcome = strict.run(job)
    assert [record.ended for record in attempts(job.address)] == [ended, "succeeded"]
    assert shown in log_of(tmp_path)
    assert "goes on from step 2" in log_of(tmp_path, 2)
    assert outcome.artifact.read_json("result.json") == {"total": expected_total(GangConfig(), ranks)}
    assert (marks / "went_wrong").exists()


def test_an_undisturbed_jax_gang_has_the_digest_of_one_that_lost_a_rank(strict: Dispatcher, gang: Callable[..., Job], store: ArtifactStore):
    job = gang(jax_march, ranks=2, fault="kill")
    disturbed = strict.run(job)
    undisturbed = strict.run(job.model_copy(update={"asset": "undisturbed", "address": store.address("undisturbed", None, job.recipe)}))
    assert [record.ended for record in attempts(job.address)] == ["crashed", "succeeded"]
    assert undisturbed.attempts == 1
    assert disturbed.artifact.digest == undisturbed.artifact.digest
