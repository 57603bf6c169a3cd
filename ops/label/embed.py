"""Embeddings: a short vector of small numbers for every document, near for texts that use the same rare words.

The embedder of this module is lexical and needs no model from elsewhere: weighted terms, randomly projected. Its weights
are how rare a term is in the corpus. All it computes is the same on every CPU, and a document's vector does not
depend on the others in its batch. What it can't see is meaning across languages and wordings; a semantic model takes
the same place as an artifact of its own.

Source: random projections with few signs, Achlioptas 2003; inverse document frequency, Spärck Jones 1972.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact, Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attributes import map_attributes
from ops.dataflow.shard import Shard, Tally
from ops.dataflow.work import Output
from ops.decontaminate.sample import sampled_train_texts
from ops.hashing.code_points import case_folding_without_punctuation
from ops.hashing.columns import TextColumn
from ops.hashing.terms import column_terms, project_terms
from ops.label.config import EmbedConfig, EmbedderConfig

LIMIT = 0.6  # of a coordinate of a unit vector: beyond it int8 would need coarser steps; 0.3 cuts too many off
PARTS = 4  # dimensions that a term goes to
Vectors = NDArray[np.int8]


class EmbedderStats(Stats):
    """What the weights were counted on."""

    documents: int
    terms: int  # slots that occur


class EmbedStats(Stats):
    """Documents, those without any term, and the coordinates that were cut off at the limit."""

    documents: int
    empty: int
    clipped: int


@program(version="1")
def fit_embedder(config: EmbedderConfig, normalized: Artifacts, out: Writer) -> EmbedderStats:
    """Weigh terms by their rarity among train documents, every source with the same number of them at most.

    Args:
        out: `weights.npy`: float64 [2**term_bits].
    """
    counts = np.zeros(1 << config.term_bits, np.int64)
    documents = 0
    for done, source in enumerate(sorted(normalized)):
        for texts in sampled_train_texts(normalized[source], config.documents_per_source, config.batch_rows):
            column = TextColumn.of(texts)
            slots, _, _ = column_terms(column.data, column.offsets, case_folding_without_punctuation(), config.max_chars, config.term_bits)
            counts += np.bincount(slots, minlength=len(counts))
            documents += len(texts)
        out.progress(done + 1, len(normalized), "sources counted")
    buffer = io.BytesIO()
    weights = np.log((1 + documents) / (1 + counts))
    np.save(buffer, np.where(counts >= config.min_documents, np.round(weights, 9), 0.0))
    with out.open("weights.npy") as stream:
        stream.write(buffer.getvalue())
    about = {"term_bits": config.term_bits, "max_chars": config.max_chars, "dims": config.dims, "seed": config.seed}
    out.write_json("embedder.json", about)
    return EmbedderStats(documents=documents, terms=int((counts > 0).sum()))


@dataclass(frozen=True)
class Embedder:
    """The embedder of an artifact."""

    weights: NDArray[np.float64]
    term_bits: int
    max_chars: int
    dims: int
    seed: int

    @classmethod
    def read(cls, artifact: Artifact) -> "Embedder":
        with artifact.open("weights.npy") as stream:
            weights = np.load(io.BytesIO(stream.read()))
        return cls(weights, **artifact.read_json("embedder.json"))

    def __call__(self, texts: pa.Array) -> Vectors:
        """int8 [texts, dims]."""
        column = TextColumn.of(texts)
        slots, counts, starts = column_terms(
            column.data, column.offsets, case_folding_without_punctuation(), self.max_chars, self.term_bits
        )
        out = np.zeros((column.rows, self.dims), np.int8)
        project_terms(slots, counts, starts, self.weights, self.dims, PARTS, self.seed, LIMIT, out)
        return out


def in_steps(units: NDArray[np.float32]) -> Vectors:
    """Unit vectors in steps of `LIMIT` / 127."""
    return np.clip(np.rint(units * (127 / LIMIT)), -127, 127).astype(np.int8)


def unit_vectors(vectors: Vectors) -> NDArray[np.float32]:
    """float32 of length one; zero where the vector is."""
    values = vectors.astype(np.float32)
    lengths = np.linalg.norm(values, axis=1, keepdims=True).astype(np.float32)
    return np.asarray(values / np.maximum(lengths, np.float32(1e-9)), np.float32)


@program(version="1")
def embed(config: EmbedConfig, normalized: Artifact, embedder: Artifact, out: Writer) -> EmbedStats:
    """Embed every document.

    Args:
        normalized: one source.
        out: co-partitioned; `id`, `embedding: fixed list<int8>[dims]` in steps of 0.6 / 127, of length one before rounding.
    """
    dims = embedder.read_json("embedder.json")["dims"]
    schema = pa.schema([("id", pa.string()), ("embedding", pa.list_(pa.int8(), dims))])
    done = map_attributes(
        "embed",
        normalized,
        out,
        EmbedDocuments(embedder, schema),
        columns=["id", "text"],
        output=Output(schema, batch_rows=config.batch_rows),
        execution=config.execution,
    )
    return EmbedStats(documents=done.rows, empty=done.tally["empty"], clipped=done.tally["clipped"])


@dataclass(frozen=True)
class EmbedDocuments:
    """Texts -> vectors."""

    embedder: Artifact
    schema: pa.Schema

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        embedder = _loaded(self.embedder)
        for batch in batches:
            vectors = embedder(batch["text"])
            tally.update(empty=int((vectors == 0).all(axis=1).sum()), clipped=int((np.abs(vectors) == 127).sum()))
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), embedder.dims)
            yield pa.RecordBatch.from_arrays([batch["id"], column], schema=self.schema)


@cache
def _loaded_from(url: str, digest: str) -> list[Embedder]:
    """One place per artifact and process."""
    return []


def _loaded(artifact: Artifact) -> Embedder:
    place = _loaded_from(artifact.url, artifact.digest)
    if not place:
        place.append(Embedder.read(artifact))
    return place[0]
