"""A memory cgroup of our own below the one that we are in: the kernel counts all that is touched there, and kills what goes beyond.

Version 2 (`memory.max`) or 1 (`memory.limit_in_bytes`), where this process may make one.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
ANONYMOUS = ("anon", "total_rss")  # what the kernel can't take back, in memory.stat of version 2 and 1
LIMITS = ("memory.max", "memory.limit_in_bytes")


class NoCapError(RuntimeError):
    """This machine lets us make no memory cgroup."""


@dataclass(frozen=True)
class Cap:
    """A cgroup, and the file that holds its limit."""

    group: Path
    limit: str

    def enter(self) -> None:
        """For a child, between fork and exec."""
        (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def anonymous_bytes(self) -> int:
        """Held now, by all processes in it."""
        rows = dict(line.split() for line in (self.group / "memory.stat").read_text().splitlines())
        return next(int(rows[name]) for name in ANONYMOUS if name in rows)


@contextlib.contextmanager
def capped(memory_bytes: int) -> Iterator[Cap]:
    """A cgroup of at most so many bytes; its processes must have ended with the block.

    Raises:
        NoCapError: says what was tried.
    """
    tried = []
    for parent in _parents():
        group = parent / f"seaway-memory-{os.getpid()}"
        try:
            group.mkdir()
        except OSError as error:
            tried.append(f"{group}: {error.strerror}")
            continue
        try:
            limit = next((name for name in LIMITS if (group / name).exists()), None)
            if limit is None:
                tried.append(f"{group}: the memory controller is not delegated to it")
                continue
            (group / limit).write_text(str(memory_bytes))
            yield Cap(group, limit)
            return
        finally:
            group.rmdir()
    raise NoCapError(f"no memory cgroup can be made here ({'; '.join(tried) or 'none is mounted'}); run as root, or in a delegated scope")


def _parents() -> Iterator[Path]:
    """Where a child of our own group may be made; a container often shows its own group as the mount's root."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            mounted = ROOT / controllers
            yield mounted / path.lstrip("/")
            yield mounted
