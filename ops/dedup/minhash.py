"""MinHash signatures, cut into LSH buckets: documents that share a bucket are *proposed* as near-duplicates.

Jaccard similarity by minima: Broder 1997. Bands of rows: P(shared bucket | J) = 1 - (1 - J**rows)**bands.
`ops.hashing.definition` defines cleaning, shingles, permutations and buckets.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attributes import map_attributes
from ops.dataflow.shard import Shard, Tally
from ops.dataflow.work import Output
from ops.dedup.config import MinhashConfig
from ops.hashing.code_points import case_folding_without_punctuation
from ops.hashing.columns import TextColumn
from ops.hashing.definition import permutations
from ops.hashing.kernels import minhash_rows

SCHEMA = pa.schema([("id", pa.string()), ("buckets", pa.list_(pa.uint64()))])


class MinhashStats(Stats):
    """Documents with and without a signature, and what the buckets mean: only equal parameters can be joined."""

    documents: int
    without_signature: int  # nothing left after cleaning; they get no bucket, or all of them would share one
    parameters: dict[str, int | str]


@program(version="1")
def minhash(config: MinhashConfig, normalized: Artifact, out: Writer) -> MinhashStats:
    """Write the LSH buckets of every document.

    Args:
        normalized: one source.
        out: co-partitioned; `id`, `buckets: list<uint64>` with `num_bands` entries, or none where the text is
            empty after cleaning.
    """
    signed = map_attributes(
        "minhash",
        normalized,
        out,
        SignDocuments(config),
        columns=["id", "text"],
        output=Output(SCHEMA, batch_rows=config.batch_rows),
        execution=config.execution,
    )
    return MinhashStats(documents=signed.rows, without_signature=signed.tally["without_signature"], parameters=parameters_of(config))


@dataclass(frozen=True)
class SignDocuments:
    """Record batches with `id` and `text` -> `SCHEMA`."""

    config: MinhashConfig

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        hasher = Hasher(self.config)
        for batch in batches:
            buckets, signed = hasher.buckets(TextColumn.of(batch["text"]))
            tally["without_signature"] += int((~signed).sum())
            yield pa.record_batch([batch["id"], list_column(buckets, signed)], schema=SCHEMA)


class Hasher:
    """The permutations of a config, ready for the kernel."""

    def __init__(self, config: MinhashConfig) -> None:
        self._config = config
        pairs = np.array(permutations(config.seed, config.num_bands * config.band_rows), np.uint32)
        self._multipliers, self._addends = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])

    def buckets(self, texts: TextColumn) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """[rows, bands] bucket hashes, and [rows] whether the row has any."""
        config = self._config
        out = np.zeros((texts.rows, config.num_bands), np.uint64)
        signed = minhash_rows(
            texts.data,
            texts.offsets,
            case_folding_without_punctuation(),
            config.shingle == "word",
            config.shingle_width,
            config.max_chars,
            self._multipliers,
            self._addends,
            out,
        )
        return out, signed


def parameters_of(config: MinhashConfig) -> dict[str, int | str]:
    """What two signature sets must agree on to be joined."""
    return {
        "shingle": config.shingle,
        "shingle_width": config.shingle_width,
        "num_bands": config.num_bands,
        "band_rows": config.band_rows,
        "seed": config.seed,
        "max_chars": config.max_chars,
    }


def list_column(buckets: NDArray[np.uint64], signed: NDArray[np.bool_]) -> pa.Array:
    """Lists of equal length, empty where `signed` is false."""
    offsets = np.zeros(len(signed) + 1, np.int32)
    np.cumsum(signed * buckets.shape[1], out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(buckets[signed].reshape(-1)), type=SCHEMA.field("buckets").type)
