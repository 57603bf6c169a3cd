"""One number for every document of a run: source by source, shard by shard, row by row. Ties go to the smaller."""

import bisect
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifacts
from ops.attributes import shard_rows
from ops.shards import shard_names


@dataclass(frozen=True)
class Shard:
    """`rows` documents, numbered from `start`."""

    source: str
    name: str
    start: int
    rows: int


@dataclass(frozen=True)
class Numbering:
    """The shards of all sources in order."""

    shards: tuple[Shard, ...]
    sources: tuple[str, ...]

    @classmethod
    def of(cls, normalized: Artifacts) -> "Numbering":
        shards, start = [], 0
        for source in sorted(normalized):
            for name in shard_names(normalized[source]):
                rows = shard_rows(normalized[source], name)
                shards.append(Shard(source, name, start, rows))
                start += rows
        return cls(tuple(shards), tuple(sorted(normalized)))

    @property
    def documents(self) -> int:
        return self.shards[-1].start + self.shards[-1].rows if self.shards else 0

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """First number of each source."""
        firsts = {shard.source: shard.start for shard in reversed(self.shards)}
        starts, last = [], self.documents
        for source in reversed(self.sources):
            last = firsts.get(source, last)
            starts.append(last)
        return np.array(starts[::-1], np.int64)

    def source_indices(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Index into `sources` of each document number."""
        return np.searchsorted(self._starts, numbers, side="right") - 1

    def source_of(self, number: int) -> str:
        """The source's name of one document number."""
        return self.sources[bisect.bisect_right(self._starts, number) - 1]

    def sources_of(self, numbers: NDArray[np.int64]) -> pa.Array:
        """The source's name of each document number."""
        return pa.array(self.sources, pa.string()).take(pa.array(self.source_indices(numbers)))
