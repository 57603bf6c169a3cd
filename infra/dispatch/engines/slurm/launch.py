"""`python -m infra.dispatch.engines.slurm.launch SPEC_URL UID HOST_ADDRESS`: what a batch script runs, on a gang's first host.

Takes the attempt, or ends at once because somebody else has it; then becomes the srun that starts the supervisors.
"""

import os
import sys

from infra.dispatch.endings import EXIT_CODES, Ending
from infra.dispatch.engines.slurm import script
from infra.dispatch.engines.slurm.holder import Holder, take
from infra.dispatch.job import Spec, is_cancelled, read_spec


def main(spec_url: str, uid: str, host_address: str) -> None:
    """End with an exit code of the contract if there is nothing to start; else never return."""
    spec = read_spec(spec_url)
    if (ending := _refused(spec, uid)) is not None:
        sys.exit(EXIT_CODES[ending])
    command = script.step(sys.executable, spec_url, host_address, spec.job.resources)
    os.execvp(command[0], command)


def _refused(spec: Spec, uid: str) -> Ending | None:
    """Why this Slurm job must not start the attempt; None once it holds it."""
    if int(os.environ.get("SLURM_RESTART_COUNT", "0")) > 0:
        _say("Slurm started this job again; it ends, and the dispatcher makes the next attempt")
        return Ending.PREEMPTED
    if spec.uid != uid:
        _say(f"queued for attempt {uid}, but the store was made anew and its attempt {spec.number} is {spec.uid}; nothing to do")
        return Ending.LEASE_LOST
    if is_cancelled(spec.job.address, spec.number):
        _say("the job was cancelled before it started")
        return Ending.CANCELLED
    if not take(spec.directory, Holder(job=os.environ["SLURM_JOB_ID"])):
        _say(f"attempt {spec.number} of {spec.job.title} has started before, or was ended; nothing to do")
        return Ending.LEASE_LOST
    return None


def _say(what: str) -> None:
    print(f"launch: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
