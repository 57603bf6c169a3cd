"""Scored documents as a table: text, tokens' ends and nats, and what of them counts. What gaps and reports are made of, without a model."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from ops.evaluation.perplexity.slices import Slice, TextDocument
from ops.evaluation.perplexity.spans import byte_nats
from ops.shards import read_batches

DOCUMENTS_FILE = "documents.parquet"
ROWS = 64  # documents in memory at one time, each with a float per token
SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("document", pa.string(), nullable=False),
        pa.field("sha256", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("target_start", pa.int64(), nullable=False),
        pa.field("target_end", pa.int64(), nullable=False),
        pa.field("is_cut", pa.bool_(), nullable=False),
        pa.field("token_ends", pa.list_(pa.int32()), nullable=False),
        pa.field("token_nats", pa.list_(pa.float64()), nullable=False),
        pa.field("nats", pa.float64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        *(pa.field(name, pa.string(), nullable=False) for name in ("family", "source", "loss", "fidelity")),
    ]
)


@dataclass(frozen=True)
class ScoredDocument:
    """One document and what a model paid for it.

    Attributes:
        target: first and last (exclusive) byte that count; the whole text of a raw document.
        token_ends, token_nats: [tokens], see `ops.evaluation.perplexity.spans`.
    """

    key: str
    document: str
    sha256: str
    text: str
    target: tuple[int, int]
    is_cut: bool
    token_ends: NDArray[np.int64]
    token_nats: NDArray[np.float64]
    tags: dict[str, str]

    @cached_property
    def byte_nats(self) -> NDArray[np.float64]:
        """What each byte of the text costs, float64 [bytes]; they sum to the tokens' nats."""
        return byte_nats(self.token_nats, self.token_ends)

    @property
    def scored(self) -> NDArray[np.float64]:
        """Of these, those that count."""
        return self.byte_nats[slice(*self.target)]

    @property
    def nats(self) -> float:
        return float(self.scored.sum())

    @property
    def bytes(self) -> int:
        return self.target[1] - self.target[0]


def scored_document(found: Slice, document: TextDocument, ends: NDArray[np.int64], nats: NDArray[np.float64]) -> ScoredDocument:
    """A document beside its tokens' nats."""
    target = document.target or (0, len(document.text.encode()))
    tags = {name: found.tags[name] for name in ("family", "source", "loss", "fidelity")}
    return ScoredDocument(found.key, document.name, document.digest, document.text, target, document.is_cut, ends, nats, tags)


def to_table(documents: Sequence[ScoredDocument]) -> pa.Table:
    rows = [
        {
            **{name: getattr(one, name) for name in ("key", "document", "sha256", "text", "is_cut", "nats", "bytes")},
            "target_start": one.target[0],
            "target_end": one.target[1],
            "token_ends": one.token_ends.astype(np.int32),
            "token_nats": one.token_nats,
            **one.tags,
        }
        for one in documents
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def read_documents(artifact: Artifact) -> Iterator[ScoredDocument]:
    """The documents of a score artifact, by key, in the order in which they were scored."""
    for batch in read_batches(artifact, DOCUMENTS_FILE, list(SCHEMA.names), ROWS):
        for row in batch.to_pylist():
            yield _of_row(row)


def _of_row(row: dict[str, Any]) -> ScoredDocument:
    return ScoredDocument(
        key=row["key"],
        document=row["document"],
        sha256=row["sha256"],
        text=row["text"],
        target=(row["target_start"], row["target_end"]),
        is_cut=row["is_cut"],
        token_ends=np.array(row["token_ends"], np.int64),
        token_nats=np.array(row["token_nats"], np.float64),
        tags={name: row[name] for name in ("family", "source", "loss", "fidelity")},
    )


def bits_per_byte(nats: float, size_bytes: int) -> float:
    """Nats over some bytes as bits per byte."""
    return nats / math.log(2) / size_bytes
