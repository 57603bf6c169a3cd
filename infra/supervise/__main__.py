"""`python -m infra.supervise SPEC_URL [--state DIR]`: run one attempt's worker under supervision.

With `--state` the process ids and the end are written into that local folder, for an engine that has no other
memory. The exit code follows `infra.dispatch.endings.EXIT_CODES`.
"""

import argparse
import sys
from pathlib import Path

from infra.supervise.state import Started, write_started
from infra.supervise.worker_process import WorkerProcess


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.supervise", description=__doc__)
    parser.add_argument("spec_url")
    parser.add_argument("--state", type=Path)
    options = parser.parse_args(arguments)
    worker = WorkerProcess(options.spec_url)
    if options.state is not None:
        write_started(options.state, Started.here(worker.group))
    from infra.supervise.supervisor import supervise  # 0.2 s of imports, while the worker imports the same

    return supervise(options.spec_url, worker, options.state)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
