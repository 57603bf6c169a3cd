"""What Slurm's word about a job that is over means for the attempt. Pure."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from infra.dispatch.endings import End, Ending
from infra.dispatch.engines.slurm.queue import Row

_WORDS: Mapping[str, tuple[Ending, str]] = MappingProxyType(
    {
        "PREEMPTED": (Ending.PREEMPTED, "Slurm preempted it for a job of higher priority"),
        "NODE_FAIL": (Ending.NODE_LOST, "Slurm lost a node of it"),
        "BOOT_FAIL": (Ending.NODE_LOST, "a node of it did not boot"),
        "TIMEOUT": (Ending.TIMED_OUT, "Slurm's time limit ran out (timeouts.wall_s, or the partition's own)"),
        "DEADLINE": (Ending.TIMED_OUT, "Slurm's deadline for it passed"),
        "OUT_OF_MEMORY": (Ending.OUT_OF_MEMORY, "Slurm ended it because it used more memory than it asked for"),
        "CANCELLED": (Ending.CANCELLED, "somebody cancelled it at Slurm"),
        "REVOKED": (Ending.CANCELLED, "a sibling cluster took it"),
    }
)
# Pending reasons that the cluster's configuration, not its load or a broken node, must change to cure. Measured on
# 22.05: nodes that are down or drained say ReqNodeNotAvail instead, which is waited for.
_UNSATISFIABLE = re.compile(
    r"BadConstraints|PartitionConfig|PartitionNodeLimit|PartitionTimeLimit|InvalidAccount|InvalidQOS|AccountNotAllowed|QOSNotAllowed"
    r"|(Assoc|QOS)M(ax|in)\w*(PerJob|PerNode|NodePerJob)\w*|QOSMin\w+"
)


def word_of(row: Row) -> End | None:
    """Slurm's positive word on a job that is over; None where only the hosts' records can tell."""
    if row.restarts:
        return End(ending=Ending.PREEMPTED, what=f"Slurm job {row.id} was requeued from outside; each start is an attempt of its own")
    found = _WORDS.get(row.state)
    return None if found is None else End(ending=found[0], what=f"{found[1]} (job {row.id}, {row.state})")


def unstarted(rows: list[Row]) -> End:
    """The end of an attempt of which no job ever began to run."""
    last = rows[-1] if rows else None
    if last is None:
        return End(ending=Ending.NEVER_STARTED, what="Slurm knows nothing of it, and nothing of it ever ran")
    if last.state == "CANCELLED" and not last.restarts:
        return End(ending=Ending.CANCELLED, what=f"somebody cancelled it at Slurm before it started (job {last.id})")
    what = f"Slurm job {last.id} ended ({last.state}, {last.reason}) before it started the supervisors; see its log"
    return End(ending=Ending.NEVER_STARTED, what=what)


def is_unsatisfiable(row: Row) -> bool:
    """Whether a waiting job waits for something that time alone won't bring."""
    return row.state == "PENDING" and _UNSATISFIABLE.fullmatch(row.reason) is not None
