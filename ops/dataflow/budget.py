"""A worker's memory, shared out. What the process holds before it starts is measured, not assumed."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ops.units import MiB

KNOWN_AT_LEAST = 160 * MiB  # Python, pyarrow, numpy and DuckDB, imported: where nothing can be measured


@dataclass(frozen=True)
class Budget:
    """What each consumer of one worker may take.

    Attributes:
        batch_bytes: of a record batch in a function's hands.
        sort_bytes: DuckDB's own limit while it sorts; beyond it, it spills.
    """

    batch_bytes: int
    sort_bytes: int

    @classmethod
    def of(cls, memory_bytes: int) -> "Budget":
        """The shares of this process, which may take `memory_bytes` in all."""
        return cls.beside(memory_bytes, held_bytes())

    @classmethod
    def beside(cls, memory_bytes: int, baseline_bytes: int) -> "Budget":
        """The shares where `baseline_bytes` are taken. A process that is too small already gets a minimum that keeps it going."""
        usable = max(memory_bytes * RELIABLE_SHARE - baseline_bytes, memory_bytes * LEAST_SHARE)
        return cls(
            batch_bytes=int(usable / BATCH_PEAK),
            sort_bytes=max(LEAST_SORT_BYTES, int(usable / SORT_PEAK)),
        )


RELIABLE_SHARE = 0.9  # the rest is for what allocators keep and fragments waste
LEAST_SHARE = 0.25  # of a process that is large before it starts: slow and going beats refused
BATCH_PEAK = 40.0  # 18 MiB a batch for a worker of 1 GiB: enough for kernels, and 10-MB documents were tokenized within it
SORT_PEAK = 1.6  # 10 million rows sorted beside a limit of 0.5 GiB: the process peaked at 0.65 GiB
LEAST_SORT_BYTES = 64 * MiB


def held_bytes() -> int:
    """Anonymous memory of this process: what a memory limit counts and the kernel can't take back."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
    return KNOWN_AT_LEAST


@contextlib.contextmanager
def capped_memory(memory_bytes: int) -> Iterator[None]:
    """Let the kernel refuse this process more than `memory_bytes` of data beyond what it holds unused already.

    So a shard that needs too much fails alone, with its name, and takes no neighbour along. Linux only; elsewhere nothing
    is enforced.
    """
    try:
        import resource
    except ImportError:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = memory_bytes + _reserved_bytes()
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _reserved_bytes() -> int:
    """Data that is mapped and not touched (stacks of threads, arenas of allocators): the limit counts it, memory doesn't."""
    try:
        rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return max(0, (int(rows["VmData"].split()[0]) - int(rows["RssAnon"].split()[0])) * 1024)
    except (OSError, KeyError):
        return 0
