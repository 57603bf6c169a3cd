"""Compaction: many small shards become one that holds the same rows, in the same order, of the same commits."""

from collections.abc import Sequence
from typing import Self

import numpy as np

from infra.archive import keys
from infra.archive.chain import Chain
from infra.archive.errors import ArchiveError, CorruptArchiveError
from infra.archive.manifest import Manifest, Retired, Shard
from infra.archive.shards import ROWS_PER_GROUP, NewShard, Runs, read_batches, read_runs
from infra.archive.transaction import COMMIT_PREFIX, SHARD_BYTES, minted, now
from infra.artifacts.writer import Writer
from infra.storage.objects import persist, remove_tree

FEWEST = 2


class _OvertakenError(ArchiveError):
    """An input is gone: somebody else compacted it."""


def runs_of_small(shards: Sequence[Shard], target_bytes: int = SHARD_BYTES) -> list[tuple[Shard, ...]]:
    """Neighbours that fit into one shard of `target_bytes`; only neighbours, so that the order of rows stays.

    A shard of half the target or more is large enough: else each small one that comes would have it written again.
    """
    runs: list[tuple[Shard, ...]] = []
    current: list[Shard] = []
    size = 0
    for shard in shards:
        is_large = shard.size >= target_bytes // 2
        if is_large or size + shard.size > target_bytes:
            runs.append(tuple(current))
            current, size = [], 0
        if not is_large:
            current.append(shard)
            size += shard.size
    runs.append(tuple(current))
    return [run for run in runs if len(run) >= FEWEST]


class Compaction:
    """One run of shards on its way to one shard. It takes as long as it takes: writers go on meanwhile.

    Inputs stay in storage for snapshots that read them, until `collect`.
    """

    def __init__(self, chain: Chain, table: str, inputs: tuple[Shard, ...], writer: str) -> None:
        self.uid = minted()
        self._chain, self._table, self._inputs, self._writer, self._at = chain, table, inputs, writer, now()
        self._url = f"{chain.url}/{COMMIT_PREFIX}{self.uid}"
        self._output: Shard | None = None
        self._is_overtaken = False

    def write(self) -> Self:
        """Write the new shard, in a stream. Where an input is compacted and collected meanwhile, there is nothing to commit.

        Raises:
            CorruptArchiveError: the inputs' rows are not those that were committed.
        """
        try:
            self._output = self._written()
        except ArchiveError as error:
            if not isinstance(error, _OvertakenError) and self._start_in(self._chain.latest()) is not None:
                raise
            self._is_overtaken = True
        return self

    def _written(self) -> Shard:
        table = self._chain.latest().tables[self._table].table(self._table)
        runs = _joined([run for shard in self._inputs for run in read_runs(self._chain.url, shard)])
        out = Writer(self._url, scratch_url=f"{self._url}/scratch")
        shard = NewShard(out, f"{COMMIT_PREFIX}{self.uid}", f"{self._table}-00000", table, runs)
        try:
            for one in self._inputs:
                for batch in read_batches(self._chain.url, one, table.schema, -1, ROWS_PER_GROUP):
                    shard.write(batch)
            written, digests = shard.close()
            expected = keys.ordered(np.concatenate([self._chain.digests(one) for one in self._inputs], axis=1))
            if not np.array_equal(keys.ordered(digests), expected):
                raise CorruptArchiveError(
                    f"{self._chain.url}: keys in {len(self._inputs)} shards of {self._table!r} are not their sidecars'; restore them"
                )
        except FileNotFoundError as error:  # its own file was collected while it was written
            shard.abandon(error)
            raise _OvertakenError(f"{self._url} was collected") from error
        except BaseException as error:
            shard.abandon(error)
            remove_tree(self._url)
            raise
        persist(self._url)
        return written

    def commit(self) -> bool:
        """Put the new shard in the place of its inputs; False, and nothing happens, if one of them is there no more.

        Raises:
            StorageError: storage stayed away; call again.
        """
        if self._is_overtaken:
            return False
        try:
            self._chain.extend(self.uid, self._replaced_in)
        except _OvertakenError:
            remove_tree(self._url)
            return False
        return True

    def _replaced_in(self, base: Manifest) -> Manifest:
        if self._output is None:
            raise ArchiveError(f"{self._url}: nothing was written; call write() first")
        if self.uid in base.fenced:
            raise _OvertakenError(f"{self._url} was collected")
        start = self._start_in(base)
        if start is None:
            raise _OvertakenError(f"{self._url}: an input was compacted by somebody else")
        number = base.number + 1
        state = base.tables[self._table]
        shards = (*state.shards[:start], self._output, *state.shards[start + len(self._inputs) :])
        retired = tuple(Retired(file=file, since=number) for shard in self._inputs for file in shard.files)
        return base.model_copy(
            update={
                "number": number,
                "uid": self.uid,
                "writer": self._writer,
                "at": self._at,
                "tables": {**base.tables, self._table: state.model_copy(update={"shards": shards})},
                "retired": (*base.retired, *retired),
            }
        )

    def _start_in(self, base: Manifest) -> int | None:
        """Where the inputs lie among the table's shards, all of them and side by side; None if they do not."""
        files = [shard.file for shard in base.tables[self._table].shards]
        mine = [shard.file for shard in self._inputs]
        start = files.index(mine[0]) if mine[0] in files else None
        return start if start is not None and files[start : start + len(mine)] == mine else None


def _joined(runs: list[tuple[int, int]]) -> Runs:
    joined: list[tuple[int, int]] = []
    for commit, rows in runs:
        if joined and joined[-1][0] == commit:
            joined[-1] = (commit, joined[-1][1] + rows)
        else:
            joined.append((commit, rows))
    return tuple(joined)
