"""kill -9, of the job and of Dagster, wherever it hurts: the next run finishes and ends in the bytes of an undisturbed one."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.journeys.lab import Lab

pytestmark = pytest.mark.faults

DEADLINE_S = 240


def worker_of(lab: Lab, asset: str) -> psutil.Process | None:
    """The process that runs an asset's program, if one is alive."""
    for process in lab.jobs():
        try:
            command = " ".join(process.cmdline())
            if "infra.dispatch.worker" in command and f"/artifacts/{asset}/" in command:
                return process
        except psutil.NoSuchProcess:
            continue
    return None


def wait_for[T](what: str, find: Callable[[], T | None], demo: psutil.Popen) -> T:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = find()
        if found is not None:
            return found
        assert demo.poll() is None, f"the demo ended ({demo.returncode}) before {what}"
        time.sleep(0.005)
    raise AssertionError(f"{what} did not happen in {DEADLINE_S} s")


def finish(demo: psutil.Popen) -> int:
    return int(demo.wait(timeout=DEADLINE_S))


@pytest.mark.timeout(900)
def test_kills_of_jobs_and_of_dagster_change_nothing(lab: Lab, finished_lab: Lab, tmp_path: Path):
    """In raw, dedup and the hero: first the job, which the same Dagster tries again; then Dagster, whose job runs on."""
    log = tmp_path / "demo.log"
    command = ("seaway", "demo", "--profile", str(lab.profile))
    demo = lab.start(*command, log=log)
    for asset in ("raw", "fuzzy_duplicates", "hero"):
        if asset == "hero":
            wait_for("the hero has a checkpoint", lambda: _checkpoint(lab), demo)
        first = wait_for(f"{asset} runs", lambda asset=asset: worker_of(lab, asset), demo)
        first.send_signal(signal.SIGKILL)
        wait_for(f"{asset} is tried again", lambda asset=asset, first=first: another_worker(lab, asset, first), demo)
        demo.send_signal(signal.SIGKILL)
        finish(demo)
        demo = lab.start(*command, log=log)
    before = lab.digests()
    assert finish(demo) == 0, log.read_text()
    ended, undisturbed = lab.digests(), finished_lab.digests()
    assert ended.items() <= undisturbed.items(), "same recipes, same bytes"
    assert {key.split("/")[0] for key in ended} == {key.split("/")[0] for key in undisturbed}, "and every node of the lineage"
    assert before.items() <= ended.items(), "what was published before was reused"
    for asset in ("raw/pydoc", "fuzzy_duplicates/_", "hero/_"):
        assert attempts_of(lab, asset) == 2, f"{asset}: the next Dagster adopted the running job"


def another_worker(lab: Lab, asset: str, than: psutil.Process) -> psutil.Process | None:
    found = worker_of(lab, asset)
    return None if found is None or found.pid == than.pid else found


def _checkpoint(lab: Lab) -> Path | None:
    return next(lab.home.glob("artifacts/hero/_/*/.scratch/**/*"), None)


def attempts_of(lab: Lab, asset: str) -> int:
    return len(list(lab.home.glob(f"artifacts/{asset}/*/.attempts/*/claim.json")))
