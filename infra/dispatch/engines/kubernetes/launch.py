"""`python -P -m infra.dispatch.engines.kubernetes.launch SPEC_URL`: what a pod runs. It becomes the host's supervisor.

A cluster may start the pods of a set again, whatever the set says: Kueue does so when it admits a set that it had evicted.
So each host claims its place in storage first, with the pod's uid: whoever comes second ends at once, as preempted, and
the dispatcher makes a new attempt.
"""

import os
import sys
from typing import NoReturn

from infra.dispatch.endings import EXIT_CODES, Ending
from infra.dispatch.engines.kubernetes.records import claim_host, directory_of
from infra.storage.errors import StorageError


def main(spec_url: str) -> NoReturn:
    host, pod = os.environ["SEAWAY_HOST"], os.environ["SEAWAY_POD_UID"]
    try:
        first = claim_host(directory_of(spec_url), int(host), pod)
    except StorageError as error:
        _end(Ending.STORAGE_AWAY, f"can't claim host {host}: {error}")
    if not first:
        _end(Ending.PREEMPTED, f"another pod was host {host} of this attempt; an attempt runs once, so this pod ends")
    os.execv(sys.executable, [sys.executable, "-P", "-m", "infra.supervise", spec_url, "--host", host])


def _end(ending: Ending, what: str) -> NoReturn:
    print(f"launch: {what}", file=sys.stderr, flush=True)
    sys.exit(EXIT_CODES[ending])


if __name__ == "__main__":
    main(sys.argv[1])
