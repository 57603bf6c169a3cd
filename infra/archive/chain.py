"""The chain as one process sees it: the newest manifest, and the one way to add another."""

from collections.abc import Callable

from infra.archive import keys, manifest
from infra.archive.errors import CorruptArchiveError
from infra.archive.manifest import Manifest, Shard
from infra.storage.objects import read_or_none

Change = Callable[[Manifest], Manifest]
"""Pure: the manifest that is to follow a given one. Raises an `ArchiveError` where it must not be."""


class Chain:
    """One archive's manifests, with what this process has read of them. Everything it keeps is immutable in storage.

    Memory: the newest manifest, and 16 bytes a row of the tables that were written to.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/") if not url.endswith("://") else url
        self._known: Manifest | None = None
        self._digests: dict[str, keys.Digests] = {}
        self._unsettled: dict[str, int] = {}

    def begin(self) -> None:
        """Make the archive unless it is there; refuses storage that has no conditional create."""
        if self._known is None:
            manifest.begin(self.url)

    def latest(self) -> Manifest:
        """The newest manifest, asked of storage.

        Raises:
            ArchiveNotFoundError: there is no archive.
        """
        self._known = manifest.latest(self.url, self._known)
        return self._known

    def extend(self, uid: str, change: Change) -> int:
        """Commit a change: make it again on top of the newest manifest until nobody was faster.

        Somebody else's commit is the only reason for another round, so the archive as a whole always moves on.

        Args:
            uid: of the transaction, the uid of the manifests that `change` makes. Call again with the same uid after a
                `StorageError`: a create whose reply was lost for good is recognised.

        Returns:
            The number of the commit.

        Raises:
            ArchiveError: `change` refused.
            StorageError: storage stayed away; whether it is committed is unknown, so call again.
        """
        if (number := self._unsettled.get(uid)) is not None and self._is_mine(number, uid):
            return number
        while True:
            proposed = change(self.latest())
            self._unsettled[uid] = proposed.number
            if manifest.create(self.url, proposed):
                self._known = proposed
                self._forget(proposed)
                return proposed.number
            if self._is_mine(proposed.number, uid):
                return proposed.number
            del self._unsettled[uid]

    def is_unsettled(self, uid: str) -> bool:
        """Whether a commit of this transaction may have happened, or may still."""
        return uid in self._unsettled

    def digests(self, shard: Shard) -> keys.Digests:
        """The keys of a shard, ascending.

        Raises:
            CorruptArchiveError: the sidecar is missing or is not what was committed.
        """
        known = self._digests.get(shard.file)
        if known is not None:
            return known
        url = f"{self.url}/{shard.keys_file}"
        data = read_or_none(url)
        if data is None or len(data) != shard.rows * keys.DIGEST_BYTES or keys.sha256(data) != shard.keys_sha256:
            raise CorruptArchiveError(f"{url} is missing or is not what was committed; restore it, or make it again from {shard.file}")
        self._digests[shard.file] = keys.from_bytes(data)
        return self._digests[shard.file]

    def _forget(self, current: Manifest) -> None:
        """Drop the keys of shards that `current` no longer has."""
        files = current.files
        self._digests = {file: digests for file, digests in self._digests.items() if file in files}

    def _is_mine(self, number: int, uid: str) -> bool:
        found = manifest.read(self.url, number)
        return found is not None and found.uid == uid
