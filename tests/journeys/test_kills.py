"""kill -9, of the job and of Dagster, wherever it hurts: the next run finishes and ends in the bytes of an undisturbed one."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.journeys.lab import Lab

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


@pytest.mark.timeout(600)
def test_kills_of_jobs_and_of_dagster_change_nothing(lab: Lab, finished_lab: Lab, tmp_path: Path):
    log = tmp_path / "demo.log"
    command = ("seaway", "demo", "--profile", str(lab.profile))

    demo = lab.start(*command, log=log)
    for asset in ("raw", "fuzzy_duplicates"):  # the job: a loss of infrastructure, tried again within the same run
        wait_for(f"{asset} runs", lambda asset=asset: worker_of(lab, asset), demo).send_signal(signal.SIGKILL)

    wait_for("the hero has a checkpoint", lambda: _checkpoint(lab), demo)
    wait_for("the hero runs", lambda: worker_of(lab, "hero"), demo).send_signal(signal.SIGKILL)

    wait_for("the cooldown runs", lambda: worker_of(lab, "cooldown"), demo)
    demo.send_signal(signal.SIGKILL)  # Dagster itself, while its job runs on
    finish(demo)

    before = lab.digests()
    demo = lab.start(*command, log=log)
    assert finish(demo) == 0, log.read_text()
    ended, undisturbed = lab.digests(), finished_lab.digests()
    assert ended.items() <= undisturbed.items(), "same recipes, same bytes"
    assert {key.split("/")[0] for key in ended} == {key.split("/")[0] for key in undisturbed}, "and every node of the lineage"
    assert before.items() <= ended.items(), "what was published before was reused"
    assert attempts_of(lab, "hero") == 2
    assert attempts_of(lab, "cooldown") == 1, "the second Dagster adopted the running job"


def _checkpoint(lab: Lab) -> Path | None:
    return next(lab.home.glob("artifacts/hero/_/*/.scratch/**/*"), None)


def attempts_of(lab: Lab, asset: str) -> int:
    return len(list(lab.home.glob(f"artifacts/{asset}/_/*/.attempts/*/claim.json")))
