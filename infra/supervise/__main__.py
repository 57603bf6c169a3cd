"""`python -m infra.supervise SPEC_URL [--host H] [--hosts N] [--state DIR]`: run one attempt's ranks of one host under supervision.

`--hosts` says over how many supervisors the gang is spread (each host of its device has one, unless told otherwise), and
`--host` which of them this is: given by a cluster's engine, which may know better how the attempt ended, so that its
dispatcher records that. With `--state` the process ids and the end are written into that local folder, for an engine that
has no other memory. The exit code follows `infra.dispatch.endings.EXIT_CODES`.
"""

import argparse
import sys
from pathlib import Path

from infra.supervise.placement import Placement
from infra.supervise.ranks import Ranks
from infra.supervise.state import Started, write_started


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.supervise", description=__doc__)
    parser.add_argument("spec_url")
    parser.add_argument("--host", type=int)
    parser.add_argument("--hosts", type=int)
    parser.add_argument("--state", type=Path)
    options = parser.parse_args(arguments)
    ranks = Ranks(options.spec_url, Placement.of(options.spec_url, options.host or 0, options.hosts))
    if options.state is not None:
        write_started(options.state, Started.here(worker.group for worker in ranks))
    from infra.supervise.supervisor import supervise  # 0.2 s of imports, while the workers import the same

    return supervise(options.spec_url, ranks, options.state, concludes=options.host is None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
