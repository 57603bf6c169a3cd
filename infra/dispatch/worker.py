"""`python -m infra.dispatch.worker SPEC_URL`: the process that runs a program. Started by its supervisor.

Before anything heavy is imported it can already be asked for its stacks, and it dies with its supervisor.
"""

import faulthandler
import signal
import sys

from infra.supervise.processes import die_with_parent
from infra.supervise.pulse import Pulse


def main(spec_url: str) -> int:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    die_with_parent()
    pulse = Pulse.of_environment()
    from infra.dispatch.execution import execute  # only now: an import may hang, too

    return execute(spec_url, pulse)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
