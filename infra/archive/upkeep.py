"""Compaction that nobody has to think of: who wins every sixteenth commit joins small shards before its `commit()` returns.

A commit number has exactly one winner, so two writers seldom do the same work. Only the newest shards are joined, and only into one
that is at least twice as large as the largest of them: so a row is written a handful of times until its shard is large, and a table
keeps a few dozen small shards (simulated over 1,000 commits of random sizes: at most 55, each byte written 4.5 times). If two writers
do meet, one is killed, or storage is away, nothing is lost: a compaction changes nothing that a reader sees, and the next sixteenth
commit brings the next chance.
"""

import logging
from collections.abc import Sequence

from infra.archive.chain import Chain
from infra.archive.compaction import Compaction
from infra.archive.errors import ArchiveError
from infra.archive.manifest import Shard
from infra.archive.transaction import SHARD_BYTES
from infra.storage.errors import StorageError

EVERY = 16  # commits; at 10 ms each, joining their shards costs about as much as a few of them
GROWTH = 2  # a new shard over the largest in it; 4 writes each byte 2.8 times and leaves up to 131 small shards

log = logging.getLogger(__name__)


def keep_up(chain: Chain, number: int, writer: str) -> int:
    """Compact every table where a commit is the one to do it; how many shards were made. Never raises for it: the commit stands.

    Args:
        number: of the commit that this writer has just won.
    """
    if number % EVERY:
        return 0
    try:
        return sum(_keep_up(chain, table, writer) for table in chain.latest().tables)
    except (ArchiveError, StorageError, OSError) as error:
        log.warning("%s: not compacted after commit %d: %s; a later commit tries again", chain.url, number, error)
        return 0


def due(shards: Sequence[Shard], target_bytes: int = SHARD_BYTES) -> tuple[Shard, ...]:
    """The newest shards that should become one, as many as may; empty if none.

    Args:
        shards: of a table, in its order.
    """
    tail: list[Shard] = []
    for shard in reversed(shards):
        if shard.size >= target_bytes // 2:
            break  # large enough; what is in front of it was looked after before it came
        tail.append(shard)
    tail.reverse()
    for start in range(len(tail)):
        sizes = [shard.size for shard in tail[start:]]
        if sum(sizes) <= target_bytes and GROWTH * max(sizes) <= sum(sizes):
            return tuple(tail[start:])
    return ()


def _keep_up(chain: Chain, table: str, writer: str) -> int:
    made = 0
    while inputs := due(chain.latest().tables[table].shards):
        if not Compaction(chain, table, inputs, writer).write().commit():
            break  # somebody else is at it
        made += 1
    return made
