"""How much memory the processes of an attempt hold on this host. Linux; elsewhere nothing is known and nothing enforced."""

import os
import time
from collections.abc import Collection
from pathlib import Path

from infra.supervise.processes import LINUX

INTERVAL_S = 1.0
SHARE_OF_TIME = 0.02  # a machine of thousands of processes takes long to look through; then the looks become rare
GIB = 1024**3


class MemoryWatch:
    """Looks now and then whether the groups hold more than `limit_bytes`.

    Anonymous and shared memory count; a mapped file does not, as the kernel takes its pages back when it needs them.
    """

    def __init__(self, groups: Collection[int], limit_bytes: int, now_s: float) -> None:
        self._groups = frozenset(groups)
        self._limit_bytes = limit_bytes
        self.next_look_s = now_s + INTERVAL_S if LINUX else float("inf")

    def excess(self, now_s: float) -> str | None:
        """One sentence, if it is time to look and they hold too much."""
        if now_s < self.next_look_s:
            return None
        held = held_bytes(self._groups)
        took_s = time.monotonic() - now_s
        self.next_look_s = now_s + took_s + max(INTERVAL_S, took_s / SHARE_OF_TIME)
        if held <= self._limit_bytes:
            return None
        return (
            f"its processes held {held / GIB:.2f} GiB on this host, resources.memory_bytes allows {self._limit_bytes / GIB:.2f} GiB; "
            "raise that or lower the program's memory knobs"
        )


def held_bytes(groups: Collection[int]) -> int:
    """Anonymous memory of all processes of these process groups, and the largest shared part: it is the same for all of them."""
    held = [_held_by(pid) for pid in filter(str.isdigit, os.listdir("/proc")) if _group_of(pid) in groups]
    return sum(anonymous for anonymous, _ in held) + max((shared for _, shared in held), default=0)


def _group_of(pid: str) -> int:
    try:
        return os.getpgid(int(pid))
    except (ProcessLookupError, PermissionError):
        return 0


def _held_by(pid: str) -> tuple[int, int]:
    """Anonymous and shared bytes of one process; nothing of one that has ended."""
    try:
        rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    except OSError:
        return 0, 0
    anonymous, shared = (int(rows[name].split()[0]) * 1024 if name in rows else 0 for name in ("RssAnon", "RssShmem"))
    return anonymous, shared
