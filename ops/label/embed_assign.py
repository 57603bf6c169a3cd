"""Which cluster of each view a document is in: exact, so the same in any batch and on any CPU."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attributes import map_attributes
from ops.dataflow.shard import Shard, Tally
from ops.dataflow.work import Output
from ops.label.config import AssignConfig
from ops.label.embed import Vectors
from ops.label.embed_clusters import Labels
from ops.label.views import clusters_in
from ops.shards import check_aligned, read_batches, shard_names

ASSIGN_ROWS = 4_096  # similarities computed at once: with 5,000 clusters 160 MB
SAMPLED_ROWS = 8_192  # of the first shard: ids are hashes, so its first rows are a fair draw
TEXT_ROWS = 256
EXCERPT_CHARS = 240


class AssignStats(Stats):
    """Documents by cluster of the coarsest view, their mean similarity to their fine centroid, and the views, finest first."""

    documents: int
    views: tuple[str, ...]
    clusters_digest: str
    mean_similarity: float
    coarsest: dict[str, int]


@program(version="3")
def assign_clusters(config: AssignConfig, normalized: Artifact, embeddings: Artifact, clusters: Artifact, out: Writer) -> AssignStats:
    """Assign every document to a cluster of each view.

    Args:
        normalized: one source.
        embeddings: of the same source.
        out: co-partitioned; `id`, `similarity: float32` to the fine centroid, and of each view a column `cluster_{size}:
            int32`; -1 in all of them for a document without any term. `samples.json`: of each cluster of the coarsest view
            the documents most like their fine centroid.

    Raises:
        MisalignedShardError: the embeddings are of other documents.
    """
    ordered = sorted(clusters.read_json("views.json"), key=clusters_in, reverse=True)
    schema = pa.schema([("id", pa.string()), ("similarity", pa.float32()), *((name, pa.int32()) for name in ordered)])
    done = map_attributes(
        "assign",
        embeddings,
        out,
        AssignDocuments(clusters, schema),
        columns=["id", "embedding"],
        output=Output(schema, batch_rows=config.batch_rows),
        execution=config.execution,
    )
    out.write_json("samples.json", samples_of(config.samples, normalized, embeddings, AssignDocuments(clusters, schema)))
    coarsest = {key.removeprefix("of/"): count for key, count in sorted(done.tally.items()) if key.startswith("of/")}
    return AssignStats(
        documents=done.rows,
        views=tuple(ordered),
        clusters_digest=clusters.digest,
        mean_similarity=round(done.tally["similarity"] / 1_000_000 / max(1, done.rows), 6),
        coarsest=coarsest,
    )


@dataclass(frozen=True)
class AssignDocuments:
    """Vectors -> clusters."""

    clusters: Artifact
    schema: pa.Schema

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        with self.clusters.open("centroids.npy") as stream:
            centroids = np.load(io.BytesIO(stream.read()))
        views = {name: np.array(view) for name, view in self.clusters.read_json("views.json").items()}
        for batch in batches:
            column = batch["embedding"]
            vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, column.type.list_size)
            fine, similarity = assigned(vectors, centroids)
            known = np.any(vectors != 0, axis=1)
            columns = {name: np.where(known, views[name][fine], -1) for name in self.schema.names[2:]}
            coarse = columns[self.schema.names[-1]]
            tally.update({f"of/{cluster}": int(count) for cluster, count in zip(*np.unique(coarse, return_counts=True), strict=True)})
            tally["similarity"] += int(np.rint(similarity * 1_000_000).sum())
            rows = [
                batch["id"],
                pa.array(similarity.astype(np.float32)),
                *(pa.array(values.astype(np.int32)) for values in columns.values()),
            ]
            yield pa.RecordBatch.from_arrays(rows, schema=self.schema)


def samples_of(count: int, normalized: Artifact, embeddings: Artifact, assign: AssignDocuments) -> list[dict[str, Any]]:
    """Of each cluster of the coarsest view, in the first rows of the source, the `count` documents most like their fine centroid."""
    name = next(iter(shard_names(normalized)), None)
    if name is None or not count:
        return []
    [rows] = assign(Shard(name, 0), iter([_first_rows(embeddings, name)]), Tally())
    coarsest, similarity = rows[rows.num_columns - 1].to_numpy(), rows["similarity"].to_numpy()
    order = np.lexsort((-similarity, coarsest))
    place = np.arange(len(order)) - np.searchsorted(coarsest[order], coarsest[order])  # in its cluster
    chosen = order[(place < count) & (coarsest[order] >= 0)].tolist()
    documents = _documents_at(normalized, name, chosen, rows["id"])
    return [{"cluster": int(coarsest[row]), "similarity": round(float(similarity[row]), 4), **documents[row]} for row in chosen]


def _first_rows(embeddings: Artifact, name: str) -> pa.RecordBatch:
    """Up to `SAMPLED_ROWS` of a shard's `id` and `embedding`."""
    batches: list[pa.RecordBatch] = []
    for batch in read_batches(embeddings, name, ["id", "embedding"], SAMPLED_ROWS):
        batches.append(batch)
        if sum(one.num_rows for one in batches) >= SAMPLED_ROWS:
            break
    return pa.concat_batches(batches).slice(0, SAMPLED_ROWS)


def _documents_at(normalized: Artifact, name: str, rows: list[int], ids: pa.Array) -> dict[int, dict[str, str]]:
    """Name and beginning of the documents in some rows of a shard, whose ids must begin with the given ones."""
    found: dict[int, dict[str, str]] = {}
    start = 0
    for batch in read_batches(normalized, name, ["id", "source_id", "text"], TEXT_ROWS):
        part = ids.slice(start, batch.num_rows)
        check_aligned(name, part, batch["id"].slice(0, len(part)))
        for row in rows:
            if 0 <= row - start < batch.num_rows:
                text = batch["text"][row - start].as_py()
                found[row] = {"source_id": batch["source_id"][row - start].as_py(), "text": text[:EXCERPT_CHARS]}
        start += batch.num_rows
        if start >= len(ids):
            break
    return found


def assigned(vectors: Vectors, centroids: Vectors) -> tuple[Labels, NDArray[np.float64]]:
    """As `nearest`, the same in any batch and on any CPU: products of small whole numbers are exact in float32."""
    labels, similarity = np.empty(len(vectors), np.int64), np.empty(len(vectors))
    lengths = np.sqrt((centroids.astype(np.int64) ** 2).sum(axis=1))
    own = np.sqrt((vectors.astype(np.int64) ** 2).sum(axis=1))
    wide = np.ascontiguousarray(centroids.astype(np.float32).T)
    for start in range(0, len(vectors), ASSIGN_ROWS):
        block = (vectors[start : start + ASSIGN_ROWS].astype(np.float32) @ wide) / np.maximum(1e-9, lengths)
        labels[start : start + len(block)] = block.argmax(axis=1)
        similarity[start : start + len(block)] = block.max(axis=1) / np.maximum(1e-9, own[start : start + len(block)])
    return labels, similarity
