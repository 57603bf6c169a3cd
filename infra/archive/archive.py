"""The archive: typed tables and blobs under one URL, written by many, read by anybody.

{archive}/.manifest-00000012.json        the chain: each the whole state, created once (infra.archive.manifest)
          commit-{uid}/samples-00000.parquet, samples-00000.keys, blobs/...
"""

from datetime import timedelta
from typing import IO

from infra.archive import PROTOCOL, manifest
from infra.archive.chain import Chain
from infra.archive.collection import Collected, collect
from infra.archive.compaction import Compaction, runs_of_small
from infra.archive.errors import ArchiveNotFoundError
from infra.archive.filesystem import ArchiveFileSystem
from infra.archive.manifest import Manifest, Tombstone
from infra.archive.snapshot import Snapshot
from infra.archive.transaction import SHARD_BYTES, Transaction, minted, now
from infra.archive.upkeep import keep_up


class Archive:
    """One archive. Opening it asks nothing of storage; keep one object per process, it remembers keys it has proven against.

    Args:
        url: where it lies or shall lie: a folder of its own, on a local path, `memory://`, `s3://` or `users://`.
        writer: who writes, for people who read manifests.
        compacts: whether commits of this object compact what they make due (infra.archive.upkeep). Without, call `compact` now and
            then: a manifest names every shard.
    """

    def __init__(self, url: str, writer: str = "", *, compacts: bool = True) -> None:
        self._chain = Chain(url)
        self._writer = writer
        self._compacts = compacts

    @property
    def url(self) -> str:
        return self._chain.url

    def transaction(self) -> Transaction:
        """Begin to add; makes the archive if there is none.

        Raises:
            PermanentStorageError: this storage has no conditional create, or can't be written.
        """
        self._chain.begin()
        if not self._compacts:
            return Transaction(self._chain, self._writer)
        return Transaction(self._chain, self._writer, lambda number: keep_up(self._chain, number, self._writer))

    def snapshot(self) -> Snapshot:
        """The archive as it is now.

        Raises:
            ArchiveNotFoundError: there is none.
        """
        return Snapshot(self.url, self._chain.latest())

    def snapshot_at(self, number: int) -> Snapshot:
        """The archive after an earlier commit.

        Raises:
            ArchiveNotFoundError: that commit never was, or its manifest was collected.
        """
        found = manifest.read(self.url, number)
        if found is None or isinstance(found, Tombstone):
            raise ArchiveNotFoundError(f"{self.url}: commit {number} {'was collected' if found else 'never was'}; read a newer one")
        return Snapshot(self.url, found)

    def seal(self) -> int:
        """Let nothing be added any more; again, it changes nothing. Compaction and collection stay possible.

        Returns:
            The number of the last commit.
        """
        self._chain.begin()
        uid, at = minted(), now()

        def sealed(base: Manifest) -> Manifest:
            return base.model_copy(update={"number": base.number + 1, "uid": uid, "writer": self._writer, "at": at, "sealed": True})

        current = self._chain.latest()
        return current.number if current.sealed else self._chain.extend(uid, sealed)

    def compactions(self, target_bytes: int = SHARD_BYTES) -> list[Compaction]:
        """What there is to compact, as work that can be done one by one: `write()`, then `commit()`."""
        return [
            Compaction(self._chain, name, run, self._writer)
            for name, state in self._chain.latest().tables.items()
            for run in runs_of_small(state.shards, target_bytes)
        ]

    def compact(self, target_bytes: int = SHARD_BYTES) -> int:
        """Join small shards of all tables; the number of shards made."""
        return sum(one.write().commit() for one in self.compactions(target_bytes))

    def collect(self, older_than: timedelta) -> Collected:
        """Remove shards that were compacted away, and what killed writers left, longer ago than `older_than`."""
        return collect(self._chain, older_than, self._writer)

    def open(self, uri: str) -> IO[bytes]:
        """Open what an `archive://` URI in this archive names, for reading.

        Raises:
            FileNotFoundError: this archive has no such blob or shard.
            ValueError: the URI names another archive.
        """
        inside, _, other = uri.removeprefix(f"{PROTOCOL}://").partition("::")
        if not uri.startswith(f"{PROTOCOL}://") or (other and other.rstrip("/") != self.url):
            raise ValueError(f"{uri} is not in the archive {self.url}; open it with fsspec, or the archive that it names")
        return ArchiveFileSystem(fo=self.url).open(inside, "rb")  # type: ignore[no-any-return]
