"""What Slurm's commands print, as 22.05 prints it, and what that means: wait, or never. The commands here are scripts."""

import os
from pathlib import Path

import pytest

from infra.dispatch.backend import EngineUnavailable, JobRejected
from infra.dispatch.engines.slurm.commands import Commands, inherited
from infra.dispatch.engines.slurm.config import SlurmConfig

CONFIG = SlurmConfig(cluster="lab", folder="/shared/seaway", command_timeout_s=20.0)


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def script(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    "words",
    [
        "Unable to contact slurm controller (connect failure)",
        "Socket timed out on send/recv operation",
        "Slurm backup controller in standby mode",
        "Protocol authentication error",
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        "Something that no Slurm has said so far",
    ],
)
def test_what_may_be_another_answer_next_time_is_asked_again(bin_folder: Path, words: str):
    script(bin_folder, "sbatch", f'echo "sbatch: error: Batch job submission failed: {words}" >&2; exit 1')
    with pytest.raises(EngineUnavailable, match=words.split(" (")[0]):
        Commands(CONFIG).submit([], "", os.environ)


@pytest.mark.parametrize(
    "words",
    [
        "Invalid partition name specified",
        "Requested node configuration is not available",
        "Memory specification can not be satisfied",
        "Invalid qos specification",
        "Invalid account or account/partition combination specified",
        "Invalid feature specification",
        "Requested time limit is invalid (missing or exceeds some limit)",
        "User's group not permitted to use this partition",
        "Access/permission denied",
    ],
)
def test_what_slurm_would_refuse_again_is_refused(bin_folder: Path, words: str):
    script(bin_folder, "sbatch", f'echo "sbatch: error: Batch job submission failed: {words}" >&2; exit 1')
    with pytest.raises(JobRejected, match="slurm refused it: Batch job submission failed: " + words.split(" (")[0]):
        Commands(CONFIG).submit([], "", os.environ)


def test_a_command_that_hangs_is_an_engine_that_is_away(bin_folder: Path):
    script(bin_folder, "squeue", "exec sleep 60")
    with pytest.raises(EngineUnavailable, match=r"squeue did not answer in 0\.2 s"):
        Commands(CONFIG.model_copy(update={"command_timeout_s": 0.2})).ask("squeue")


def test_a_cancel_of_a_job_that_is_over_is_fine_and_one_without_slurm_is_not(bin_folder: Path):
    script(bin_folder, "scancel", 'echo "scancel: error: Kill job error on job id 7: Job/step already completing or completed" >&2; exit 1')
    Commands(CONFIG).cancel(["7"])
    script(bin_folder, "scancel", 'echo "scancel: error: Kill job error on job id 7: Unable to contact slurm controller" >&2; exit 8')
    with pytest.raises(EngineUnavailable):
        Commands(CONFIG).cancel(["7"])


def test_a_batch_script_and_its_environment_reach_sbatch(bin_folder: Path, tmp_path: Path):
    script(bin_folder, "sbatch", f'cat > {tmp_path}/script; echo "$SLURM_CONF $OWN $SBATCH_PARTITION $1" > {tmp_path}/told')
    config = CONFIG.model_copy(update={"conf": "/etc/other/slurm.conf"})
    Commands(config).submit(["--hold"], "#!/bin/sh\ntrue\n", {**os.environ, "OWN": "own", "SBATCH_PARTITION": "stray"})
    assert (tmp_path / "script").read_text() == "#!/bin/sh\ntrue\n"
    assert (tmp_path / "told").read_text() == "/etc/other/slurm.conf own  --hold\n"


def test_a_dispatcher_inside_a_job_does_not_pass_its_jobs_variables_on():
    assert inherited({"SLURM_JOB_ID": "1", "SRUN_CPUS_PER_TASK": "2", "SLURM_CONF": "/c", "HOME": "/h"}) == {
        "SLURM_CONF": "/c",
        "HOME": "/h",
    }
