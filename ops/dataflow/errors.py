"""How a stage fails: with the shards that can't be done by name, after all others are done and kept."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Poison:
    """A shard that can't be done: which one, where in it, and what happened.

    `rows` are the first and one past the last row that were in the function's hands, equal if none was; None before the first.
    """

    shard: str
    rows: tuple[int, int] | None
    ids: tuple[str, ...]
    error: str

    def __str__(self) -> str:
        where = "before any row"
        if self.rows is not None:
            first, end = self.rows
            where = f"after row {first - 1}" if end == first else f"row {first}" if end == first + 1 else f"rows {first} to {end - 1}"
            if self.ids:
                where += f" (id {self.ids[0]})" if len(self.ids) == 1 else f" (ids {self.ids[0]} to {self.ids[-1]})"
        return f"{self.shard}, {where}: {self.error}"


class PoisonedShardsError(RuntimeError):
    """Some shards of a stage can't be done; the others are committed, and no later attempt does them again."""

    def __init__(self, stage: str, poisons: Sequence[Poison], shards: int) -> None:
        self.stage, self.poisons, self.shards = stage, tuple(poisons), shards
        super().__init__(stage, self.poisons, shards)

    def __str__(self) -> str:
        told = "; ".join(map(str, self.poisons[:8])) + (" ..." if self.poisons[8:] else "")
        return (
            f"{self.stage}: {len(self.poisons)} of {self.shards} shards can't be done: {told}. The others are committed and will "
            "not be done again: correct these rows at their source or the program, then run again"
        )


class WorkersLostError(RuntimeError):
    """Worker after worker ended without finishing anything: no shard's fault."""


class IncompleteBucketError(RuntimeError):
    """A shuffle gave a bucket fewer or more rows than were sent to it."""


class AmbiguousOrderError(ValueError):
    """Two rows of a bucket are equal in key and order columns: what a function makes of them would depend on chance."""
