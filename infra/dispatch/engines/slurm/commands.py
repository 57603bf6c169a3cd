"""Slurm's own commands, each with a time-out, and what their errors mean: wait, or never."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.dispatch.backend import EngineUnavailable, JobRejected
from infra.dispatch.engines.slurm.config import SlurmConfig

# What slurmctld says of a request that it would refuse again (slurm_errno.c of 22.05 to 25.05). Anything else is taken
# for a state of the world, since giving up on a job because of an outage is the worse mistake.
_NEVER = re.compile(
    r"Invalid partition|Requested partition configuration not available|Requested node configuration is not available"
    r"|Invalid (qos|account|generic resource|feature|license|constraint|reservation|--|argument|option)"
    r"|Requested reservation is invalid|Requested (GRES|time limit)|Memory specification|Node count specification|CPU count"
    r"|More processors requested than permitted|(un)?recognized option|invalid option|requires an argument"
    r"|Access/permission denied|User's group not permitted|is not permitted to use|Duplicate generic resource"
    r"|Job violates accounting/QOS policy.*(per job|PerJob)|Unable to open file|Batch script",
    re.IGNORECASE,
)
_OF_SLURM = ("SLURM_", "SBATCH_", "SQUEUE_", "SCANCEL_", "SRUN_", "SALLOC_", "SACCT_", "SINFO_")


@dataclass(frozen=True)
class Answer:
    """What a command printed."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Slurm's own words, without the name of the command before each line."""
        lines = (re.sub(r"^\w+: (error|fatal): ", "", line).strip() for line in (self.err or self.out).splitlines())
        return "; ".join(dict.fromkeys(filter(None, lines)))


class Commands:
    """Runs them for one cluster.

    Raises, from every method:
        EngineUnavailable: no answer in time, or one that may be another next time.
    """

    def __init__(self, config: SlurmConfig) -> None:
        self._timeout_s = config.command_timeout_s
        self._conf = config.conf

    def ask(self, *words: str) -> str:
        """What a command that only looks prints."""
        answer = self._run(words, inherited(os.environ))
        if answer.code != 0:
            raise EngineUnavailable(f"slurm: {words[0]} says: {answer.words or f'exit code {answer.code}'}; is slurmctld up?")
        return answer.out

    def submit(self, arguments: Sequence[str], script: str, environment: Mapping[str, str]) -> None:
        """Queue a batch script.

        Raises:
            JobRejected: Slurm would refuse it again; with Slurm's own words.
            EngineUnavailable: unknown whether it is queued.
        """
        answer = self._run(("sbatch", *arguments), inherited(environment), script)
        if answer.code == 0:
            return
        if _NEVER.search(answer.words):
            raise JobRejected(f"slurm refused it: {answer.words}; correct the resources or the backend's bands")
        raise EngineUnavailable(f"slurm: sbatch says: {answer.words or f'exit code {answer.code}'}")

    def cancel(self, ids: Sequence[str]) -> None:
        """Ask for the end of jobs: SIGTERM, and after KillWait SIGKILL. What is over or unknown is fine: a look at the queue decides."""
        self._scancel(ids)

    def kill(self, ids: Sequence[str]) -> None:
        """Kill the supervisors and workers of running jobs, without letting one say a word. The jobs end by that.

        Only their one step is named: a kill of a whole job begins with a SIGTERM for its steps.
        """
        self._scancel([f"{job}.0" for job in ids], "--signal=KILL")

    def _scancel(self, ids: Sequence[str], *options: str) -> None:
        if not ids:
            return
        answer = self._run(("scancel", "--quiet", *options, *ids), inherited(os.environ))
        if answer.code != 0 and "contact" in answer.words:
            raise EngineUnavailable(f"slurm: scancel says: {answer.words}")

    def cluster(self) -> str:
        """The name of the cluster that answers."""
        found = re.search(r"^ClusterName\s*=\s*(\S+)", self.ask("scontrol", "show", "config"), re.MULTILINE)
        if found is None:
            raise EngineUnavailable("slurm: scontrol show config names no ClusterName")
        return found[1]

    def _run(self, words: Sequence[str], environment: Mapping[str, str], stdin: str = "") -> Answer:
        told = {**environment, "LC_ALL": "C.UTF-8"} | ({"SLURM_CONF": self._conf} if self._conf else {})
        try:
            done = subprocess.run(words, input=stdin, env=told, capture_output=True, text=True, timeout=self._timeout_s, check=False)
        except subprocess.TimeoutExpired:
            raise EngineUnavailable(f"slurm: {words[0]} did not answer in {self._timeout_s:g} s; is slurmctld up?") from None
        except FileNotFoundError:
            raise EngineUnavailable(f"slurm: there is no {words[0]} on this machine; install Slurm's client") from None
        return Answer(done.returncode, done.stdout, done.stderr)


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the variables of a job that this process may itself run in: they would become options of the new one."""
    return {name: value for name, value in environment.items() if not name.startswith(_OF_SLURM) or name == "SLURM_CONF"}
