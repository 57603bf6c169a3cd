"""What a shuffle exchanges, and how its rows come to a bucket: by key, then in a stated order, on every engine."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ops.dataflow.errors import AmbiguousOrderError
from ops.dataflow.shard import Shard, StageFunction, Tally

BUCKET = "_bucket"


@dataclass(frozen=True)
class Keyed:
    """The exchanged rows.

    Attributes:
        schema: of the rows.
        key: a column of whole numbers, our own stable hash or an index: bucket = key modulo the number of buckets.
        order: columns that order the rows of a key, nulls last. Key and order together name a row, so no engine is left a choice.
        carried: columns that may be megabytes long (texts); the embedded engine lays them aside while it sorts.
    """

    schema: pa.Schema
    key: str
    order: tuple[str, ...]
    carried: tuple[str, ...] = ()

    @property
    def sorted_schema(self) -> pa.Schema:
        """Of the columns that are not carried."""
        return pa.schema([field for field in self.schema if field.name not in self.carried])

    @property
    def sorting(self) -> tuple[str, ...]:
        return (self.key, *self.order)

    def buckets_of(self, batch: pa.RecordBatch, buckets: int) -> NDArray[np.int32]:
        """[rows]: the bucket of each."""
        keys = batch[self.key].to_numpy()
        return np.asarray(keys % keys.dtype.type(buckets), np.int32)


def strictly_ordered(batches: Iterator[pa.RecordBatch], keyed: Keyed, bucket: str) -> Iterator[pa.RecordBatch]:
    """Pass a bucket's rows on while they ascend.

    Raises:
        AmbiguousOrderError: two rows are equal in key and order, or the engine didn't sort.
    """
    last: pa.RecordBatch | None = None
    for batch in batches:
        named = batch.select(list(keyed.sorting))
        joined = pa.concat_batches([last, named]) if last is not None else named
        if (row := _first_descent(joined)) is not None:
            first, second = (joined.slice(place, 1).to_pylist()[0] for place in (row, row + 1))
            raise AmbiguousOrderError(
                f"{bucket}: rows {first} and {second} follow each other; name order columns that tell the rows of a key apart"
            )
        yield batch
        last = named.slice(named.num_rows - 1)


def _first_descent(rows: pa.RecordBatch) -> int | None:
    """The first row that the next one does not follow strictly, in the order of the columns."""
    if rows.num_rows < 2:
        return None
    ascends = pa.repeat(pa.scalar(False), rows.num_rows - 1)
    for column in reversed(rows.columns):
        before, after = column.slice(0, len(column) - 1), column.slice(1)
        less, equal = pc.less(before, after), pc.equal(before, after)
        if column.null_count:
            less = pc.coalesce(less, pc.and_(pc.is_valid(before), pc.is_null(after)))
            equal = pc.coalesce(equal, pc.and_(pc.is_null(before), pc.is_null(after)))
        ascends = pc.or_(less, pc.and_(equal, ascends))
    place = pc.index(ascends, False).as_py()
    return None if place < 0 else int(place)


@dataclass(frozen=True)
class Ordered:
    """A stage function that gets a bucket's rows, and only in order."""

    function: StageFunction
    keyed: Keyed

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        return self.function(shard, strictly_ordered(batches, self.keyed, shard.name), tally)
