"""Shards that are done: one record each, created once, beside the file that it names.

    {scratch}/dataflow/{stage}-{plan}/00007.json                the record: who won, what it wrote, what it counted
    {scratch}/dataflow/{stage}-{plan}/00007-{try}/{file}        what one try wrote

The scratch space outlives an attempt and belongs to one recipe, so a later attempt finds what an earlier one finished.
As with artifacts, one conditional create decides: a try that lost leaves no trace, and a zombie can't write over the winner.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from infra.artifacts.manifest import FileEntry
from infra.artifacts.writer import Writer
from infra.storage.objects import create_exclusive, list_names, persist, read_or_none, remove_tree
from ops.dataflow.shard import Piece, Shard

FILE = "shard.parquet"
ASIDE = "aside.parquet"


class Commit(BaseModel):
    """A finished shard. `rows` are those of `file`; `aside` holds what the stage set aside, where it sets rows aside."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int
    name: str
    directory: str
    file: FileEntry
    aside: FileEntry | None = None
    rows: int
    tally: dict[str, int]


@dataclass(frozen=True)
class Ledger:
    """The commits of one stage under `url`."""

    url: str

    def committed(self) -> dict[int, Commit]:
        """What earlier attempts finished, by shard index."""
        indices = [int(name.removesuffix(".json")) for name in list_names(self.url) if name.endswith(".json")]
        found = {index: self.find(index) for index in indices}
        return {index: commit for index, commit in found.items() if commit is not None}

    def find(self, index: int) -> Commit | None:
        stored = read_or_none(self._record(index))
        return None if stored is None else Commit.model_validate_json(stored)

    @contextlib.contextmanager
    def attempt(self, shard: Shard) -> Iterator["Attempt"]:
        """A place to write a shard to; gone if the block ends with an error."""
        directory = f"{shard.index:05d}-{uuid4().hex[:16]}"
        writer = Writer(f"{self.url}/{directory}", scratch_url=f"{self.url}/{directory}")
        try:
            yield Attempt(self, shard, directory, writer)
        except BaseException:
            with contextlib.suppress(Exception):
                remove_tree(f"{self.url}/{directory}")
            raise

    def piece(self, commit: Commit, columns: tuple[str, ...] | None = None) -> Piece:
        """A finished shard as the input of the next stage."""
        return Piece(self.file_url(commit), columns)

    def file_url(self, commit: Commit) -> str:
        return f"{self.url}/{commit.directory}/{FILE}"

    def aside_url(self, commit: Commit) -> str:
        return f"{self.url}/{commit.directory}/{ASIDE}"

    def _record(self, index: int) -> str:
        return f"{self.url}/{index:05d}.json"


@dataclass(frozen=True)
class Attempt:
    """One try at one shard."""

    ledger: Ledger
    shard: Shard
    directory: str
    writer: Writer

    def commit(self, rows: int, tally: dict[str, int]) -> Commit:
        """Make what was written the shard, unless another try was first; whichever it is comes back."""
        persist(self.writer.url)
        files = {entry.name: entry for entry in self.writer.files}
        mine = Commit(
            index=self.shard.index,
            name=self.shard.name,
            directory=self.directory,
            file=files[FILE],
            aside=files.get(ASIDE),
            rows=rows,
            tally=tally,
        )
        if create_exclusive(self.ledger._record(self.shard.index), mine.model_dump_json().encode()):
            return mine
        winner = self.ledger.find(self.shard.index)
        if winner is None or (winner.file, winner.aside) != (mine.file, mine.aside):
            raise RuntimeError(
                f"{self.ledger.url}: two tries at {self.shard.name} wrote different bytes; equal inputs must give equal bytes: "
                "find what is not deterministic"
            )
        remove_tree(self.writer.url)
        return winner
