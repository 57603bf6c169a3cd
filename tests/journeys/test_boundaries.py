"""kill -9 before and after every write that a job's life consists of: the next look finds what there is and goes on from there.

One story is one death of one process at one write. After each: the bytes of an undisturbed run, every attempt's end
known, nothing running, nothing left over, and the price that the death should have.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.artifacts.lease import attempts
from infra.artifacts.store import ArtifactStore
from infra.dispatch.endings import COSTS, Budget, Ending
from infra.dispatch.job import Job, Resources
from infra.dispatch.rendezvous import ENDPOINT_NAME
from infra.storage.objects import list_names
from tests.infra.dispatch.builders import job_of, processes_of, wait_for
from tests.infra.dispatch.gang_programs import GangConfig, march
from tests.infra.dispatch.programs import CountConfig, count

pytestmark = pytest.mark.faults

TRAP = Path(__file__).parent / "trap"
NUMBERS = 40


@dataclass(frozen=True)
class Story:
    """Who dies where, and how its attempts may end, the published one included."""

    victim: str
    kind: str
    name: str
    moment: str
    endings: tuple[tuple[Ending, ...], ...]
    ranks: int = 1

    def __str__(self) -> str:
        whose = "" if self.ranks == 1 else f" of a gang of {self.ranks}"
        return f"the {self.victim}{whose} dies {self.moment} it writes {self.name}"


ONCE = ((Ending.SUCCEEDED,),)
LATE = ((Ending.SUPERVISOR_LOST,),)  # it published, and died before it could say so
UNBORN = ((Ending.NEVER_STARTED, Ending.SUCCEEDED),)  # free
CRASHED = ((Ending.CRASHED, Ending.SUCCEEDED),)
LOST = ((Ending.SUPERVISOR_LOST, Ending.SUCCEEDED),)
AROUND = ("before", "after")

STORIES = [
    # The dispatcher leaves no trace but what it wrote; whoever comes next reads it and goes on.
    *(Story("dispatcher", "create", "claim.json", moment, ONCE) for moment in AROUND),
    *(Story("dispatcher", "create", "job.json", moment, ONCE) for moment in AROUND),
    Story("dispatcher", "local", "submission.json", "before", ONCE),
    Story("dispatcher", "local", "submission.json", "after", UNBORN),
    *(Story("dispatcher", "create", "end.json", moment, ONCE) for moment in AROUND),
    # The supervisor's death ends its worker; only the artifact can make up for it.
    Story("supervisor", "local", "supervisor.json", "before", UNBORN),
    Story("supervisor", "local", "supervisor.json", "after", LOST),
    *(Story("supervisor", "replace", "beat.json", moment, LOST) for moment in AROUND),
    Story("supervisor", "create", "end.json", "before", LATE),
    Story("supervisor", "create", "end.json", "after", ONCE),
    *(Story("supervisor", "local", "ended.json", moment, ONCE) for moment in AROUND),
    # The worker's death is a loss of the infrastructure, unless it published before.
    *(Story("worker", "replace", "messages/000001.jsonl", moment, CRASHED) for moment in AROUND),
    *(Story("worker", "replace", ".provenance.json", moment, CRASHED) for moment in AROUND),
    Story("worker", "create", ".artifact.json", "before", CRASHED),
    Story("worker", "create", ".artifact.json", "after", ONCE),
    # Of a gang, whoever dies takes all along, and all begin again from the last checkpoint that was committed.
    *(Story("worker", "create", ENDPOINT_NAME, moment, CRASHED, ranks=3) for moment in AROUND),
    *(Story("worker", "create", "saved.json", moment, CRASHED, ranks=3) for moment in AROUND),
    *(Story("supervisor", "replace", "beat.json", moment, LOST, ranks=3) for moment in AROUND),
    Story("worker", "create", ".artifact.json", "before", CRASHED, ranks=3),
    Story("worker", "create", ".artifact.json", "after", ONCE, ranks=3),
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The digest of a run in which nobody died, by ranks."""
    digests = {}
    for ranks in sorted({story.ranks for story in STORIES}):
        folder = tmp_path_factory.mktemp("undisturbed")
        store, job = _store_and_job(folder, ranks)
        assert _dispatch(store, job, folder).returncode == 0
        digests[ranks] = _digest(store, job)
    return digests


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_whoever_dies_at_whichever_write_the_job_ends_in_the_same_bytes(story: Story, undisturbed: dict[int, str], tmp_path: Path):
    store, job = _store_and_job(tmp_path, story.ranks)
    trap = f"{story.victim} {story.kind} {story.name} {story.moment} {tmp_path}"
    first = _dispatch(store, job, tmp_path, SEAWAY_TRAP=trap)
    assert (tmp_path / "died").exists(), "the story happened"
    assert (first.returncode == 0) == (story.victim != "dispatcher"), first.stderr
    again = _dispatch(store, job, tmp_path)
    assert again.returncode == 0, again.stderr
    assert _digest(store, job) == undisturbed[story.ranks]
    _require_clean(store, job, tmp_path)
    endings = tuple(Ending(record.ended) for record in attempts(job.address))
    assert endings in story.endings
    assert not any(COSTS[ending].budget is Budget.APPLICATION for ending in endings), "no death is billed to the program"


def _store_and_job(folder: Path, ranks: int) -> tuple[ArtifactStore, Job]:
    store = ArtifactStore(str(folder / "store"))
    if ranks == 1:
        return store, job_of(store, count, CountConfig(numbers=NUMBERS))
    return store, job_of(store, march, GangConfig(), resources=Resources(device=f"cpux{ranks}"))


def _dispatch(store: ArtifactStore, job: Job, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A dispatcher in its own process, followed to its end; the job's processes may outlive it."""
    command = [sys.executable, "-m", "tests.infra.dispatch.run_job", store.root, str(folder / "state"), job.model_dump_json()]
    paths = (str(TRAP), str(Path(__file__).parents[2]), *filter(None, os.environ.get("PYTHONPATH", "").split(":")))
    return subprocess.run(
        command, env={**os.environ, **env, "PYTHONPATH": ":".join(paths)}, capture_output=True, text=True, timeout=120, check=False
    )


def _digest(store: ArtifactStore, job: Job) -> str:
    artifact = store.open_at(job.address)
    assert artifact is not None
    store.verify(artifact)
    return artifact.digest


def _require_clean(store: ArtifactStore, job: Job, folder: Path) -> None:
    """Nothing runs, every attempt's end is known, and beside the artifact lies nothing that a sweep wouldn't take."""
    wait_for(lambda: not processes_of(folder), "no process of the story is left")
    records = attempts(job.address)
    assert records
    assert all(record.ended is not None for record in records)
    artifact = store.open_at(job.address)
    assert artifact is not None
    store.sweep(job.address)  # a dispatcher that dies between publication and its own sweep leaves that to the next one
    assert set(list_names(job.address)) == {".artifact.json", ".attempts", artifact.manifest.directory}
