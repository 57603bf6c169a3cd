"""What a bucket found about documents, on its way back to the shards that they are in."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ops.dataflow.shard import Shard, Tally


def returned(repeats: pa.Schema) -> pa.Schema:
    """The rows of `repeats`, each with the shard of its document in front."""
    return pa.schema([("shard", pa.int64()), *repeats])


@dataclass(frozen=True)
class ReturnRepeats:
    """Sends repeats to the shard that their document is in.

    Attributes:
        starts: of each shard the number of its first document.
        schema: as `returned` makes it, of repeats whose document is the column `number`.
    """

    starts: tuple[int, ...]
    schema: pa.Schema

    def __call__(self, source: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        starts = np.array(self.starts)
        for batch in batches:
            shards = np.searchsorted(starts, batch["number"].to_numpy(), side="right") - 1
            yield pa.RecordBatch.from_arrays([pa.array(shards), *batch.columns], schema=self.schema)
