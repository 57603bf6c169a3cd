"""What a piece of work costs: CPU seconds of this process and its children, and the most memory they held.

Standard library only: candidates run in environments of their own.
"""

import json
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LEAST_CPU_S = 0.4  # work that is repeatable is repeated until this much: the noise of short work is tens of milliseconds


@dataclass(frozen=True)
class Work:
    """Something to measure: `run` gives a result, `judge` says how good it is.

    Attributes:
        bytes: of input, by which MB/s are told.
        repeatable: running it again costs the same: no cache of texts, no files left behind.
    """

    documents: int
    bytes: int
    run: Callable[[], Any]
    judge: Callable[[Any], Mapping[str, float]] = field(default=lambda _: {})
    repeatable: bool = False


def cpu_s() -> float:
    """User and system seconds of this process and of its children that ended."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def peak_bytes() -> int:
    """The largest resident set of this process or one of its children."""
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return max(peaks) * (1 if sys.platform == "darwin" else 1024)


def measured(prepare: Callable[[], Work]) -> dict[str, Any]:
    """Prepare (imports, models, inputs: not on the clock), run, judge."""
    started = cpu_s()
    work = prepare()
    begun = cpu_s()
    result = work.run()
    runs = 1
    while work.repeatable and cpu_s() - begun < LEAST_CPU_S:
        work.run()
        runs += 1
    spent = (cpu_s() - begun) / runs
    return {
        "documents": work.documents,
        "bytes": work.bytes,
        "cpu_s": spent,
        "start_cpu_s": begun - started,
        "peak_bytes": peak_bytes(),
        "quality": dict(work.judge(result)),
    }


def report(prepare: Callable[[], Work]) -> None:
    """Measure and print one line of JSON, the last on standard output."""
    print(json.dumps(measured(prepare)), flush=True)
