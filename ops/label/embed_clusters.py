"""Clusters of embeddings, fine ones and nested coarser views of them, none of which is too small.

Spherical k-means: unit vectors, cosine similarity, which is to be *maximised*. Every row of the sample takes part in every
round. Coarser views merge finer clusters, so each fine cluster lies in one coarse one; a view ends with no cluster below
its minimum population. k-means in float32 is not bit-stable across CPUs: clusters are made once and kept as an artifact.

Source: Dhillon, Modha 2001; seeding by distance, Arthur, Vassilvitskii 2007.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact, Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.label.config import ClusterConfig
from ops.label.embed import Vectors, in_steps, unit_vectors
from ops.label.views import view_of
from ops.shards import read_batches, shard_names

Units = NDArray[np.float32]
Labels = NDArray[np.int64]
BLOCK_ROWS = 65_536  # similarities computed at once: 65,536 x 5,000 floats are 1.3 GB, so fewer clusters need less


class ViewStats(Stats):
    """One view: its clusters, and the share of the sample in the smallest and the largest.

    asked: how many clusters the config names; the smallest must have `least_share`.
    """

    clusters: int
    asked: int
    smallest_share: float
    largest_share: float
    least_share: float


class ClusterStats(Stats):
    """Rows that the clusters were made of, by source; the mean similarity to the own centroid; the views, finest first."""

    rows: int
    rows_by_source: dict[str, int]
    rounds: int
    mean_similarity: float
    views: dict[str, ViewStats]


@program(version="2")
def cluster_embeddings(config: ClusterConfig, embeddings: Artifacts, out: Writer) -> ClusterStats:
    """Make clusters of a sample.

    Args:
        embeddings: by source; each gives the documents of its smallest ids, `rows_per_source` at most.
        out: `centroids.npy`: int8 [clusters, dims], as embeddings are. `views.json`: name -> for each fine cluster the
            cluster of that view.

    Raises:
        ValueError: there are fewer different vectors than clusters.
    """
    samples = {source: sample_vectors(embeddings[source], config.rows_per_source) for source in sorted(embeddings)}
    units = unit_vectors(np.concatenate(list(samples.values()))) if samples else np.zeros((0, 1), np.float32)
    units = units[np.any(units != 0, axis=1)]
    fitted = spherical_k_means(units, config.clusters, config.rounds, config.seed, out)
    population = np.bincount(fitted.labels, minlength=config.clusters)
    views = {view.name: view for view in nested_views(fitted.centroids, population, config.views, config.min_even_share)}
    buffer = io.BytesIO()
    np.save(buffer, in_steps(fitted.centroids))
    with out.open("centroids.npy") as stream:
        stream.write(buffer.getvalue())
    out.write_json("views.json", {name: view.labels.tolist() for name, view in views.items()})
    return ClusterStats(
        rows=len(units),
        rows_by_source={source: len(rows) for source, rows in samples.items()},
        rounds=fitted.rounds,
        mean_similarity=round(fitted.mean_similarity, 6),
        views={name: _view_stats(view, population) for name, view in views.items()},
    )


def sample_vectors(artifact: Artifact, rows: int) -> Vectors:
    """The vectors of the smallest ids: ids are hashes, so that is a draw, and the same one every time."""
    ids: list[str] = []
    parts: list[Vectors] = []
    for name in shard_names(artifact):
        for batch in read_batches(artifact, name, ["id", "embedding"]):
            ids += batch["id"].to_pylist()
            column = batch["embedding"]
            parts.append(column.flatten().to_numpy(zero_copy_only=False).reshape(-1, column.type.list_size))
    if not parts:
        return np.zeros((0, 1), np.int8)
    chosen = np.argsort(np.array(ids))[:rows]
    return np.concatenate(parts)[chosen]


@dataclass(frozen=True)
class Clustering:
    """centroids: float32 [clusters, dims], unit length. labels: [rows]."""

    centroids: Units
    labels: Labels
    rounds: int
    mean_similarity: float


def spherical_k_means(units: Units, clusters: int, max_rounds: int, seed: int, out: Writer) -> Clustering:
    """Cluster unit vectors until nothing moves, or for `max_rounds`.

    Raises:
        ValueError: there are fewer different vectors than clusters.
    """
    if len(np.unique(units, axis=0)) < clusters:
        raise ValueError(f"{len(units)} rows hold fewer than {clusters} different vectors; ask for fewer clusters or sample more rows")
    rng = np.random.default_rng(seed)
    centroids = seed_centroids(units, clusters, rng)
    labels, similarity = nearest(units, centroids)
    rounds = 0
    for rounds in range(1, max_rounds + 1):
        sums = np.zeros_like(centroids)
        np.add.at(sums, labels, units)
        empty = np.flatnonzero(np.bincount(labels, minlength=clusters) == 0)
        sums[empty] = units[np.argsort(similarity)[: len(empty)]]  # the rows that fit worst begin anew
        lengths = np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
        centroids = np.asarray(sums / lengths, np.float32)
        moved, similarity = nearest(units, centroids)
        out.progress(rounds, max_rounds, "rounds", similarity=float(similarity.mean()))
        if np.array_equal(moved, labels):
            break
        labels = moved
    return Clustering(centroids, labels, rounds, float(similarity.mean()))


def seed_centroids(units: Units, clusters: int, rng: np.random.Generator) -> Units:
    """k-means++: each next centroid is a row, drawn by its distance 1 - cos from the nearest one so far."""
    chosen = [int(rng.integers(len(units)))]
    distance = np.maximum(0.0, 1.0 - (units @ units[chosen[0]]).astype(np.float64))
    for _ in range(clusters - 1):
        total = distance.sum()
        place = int(np.searchsorted(np.cumsum(distance), rng.random() * total)) if total > 1e-6 else int(rng.integers(len(units)))
        chosen.append(min(place, len(units) - 1))
        distance = np.minimum(distance, np.maximum(0.0, 1.0 - (units @ units[chosen[-1]]).astype(np.float64)))
    return units[chosen].copy()


def nearest(units: Units, centroids: Units) -> tuple[Labels, Units]:
    """For each row the most similar centroid, the first of equal ones, and the similarity."""
    labels, similarity = np.empty(len(units), np.int64), np.empty(len(units), np.float32)
    for start in range(0, len(units), BLOCK_ROWS):
        block = units[start : start + BLOCK_ROWS] @ centroids.T
        labels[start : start + len(block)] = block.argmax(axis=1)
        similarity[start : start + len(block)] = block.max(axis=1)
    return labels, similarity


@dataclass(frozen=True)
class View:
    """labels: for each fine cluster the one of this view. `asked`: how many there should be, each with `least_share` of all rows."""

    labels: Labels
    asked: int
    least_share: float

    @property
    def name(self) -> str:
        """By the clusters that it has."""
        return view_of(int(self.labels.max()) + 1)


def nested_views(centroids: Units, population: NDArray[np.int64], sizes: Sequence[int], min_even_share: float) -> tuple[View, ...]:
    """Views of the fine clusters, the finest first: each merges groups of the one before.

    Groups are merged by the similarity of their mean vectors until there are as many as asked for and none has less than
    `min_even_share` of what an even split would give it; so a view may have fewer clusters than asked.
    """
    group = np.arange(len(centroids))
    sums, weight = centroids.astype(np.float64) * population[:, None], population.astype(np.float64)
    alive = np.ones(len(centroids), bool)
    views = [View(group.copy(), len(centroids), 0.0)]
    for size in sorted(sizes, reverse=True):
        while alive.sum() > 1:
            members = np.flatnonzero(alive)
            small = weight[members].min() < min_even_share / size * population.sum()
            if len(members) <= size and not small:
                break
            means = sums[members] / np.maximum(1e-9, np.linalg.norm(sums[members], axis=1, keepdims=True))
            alike = means @ means.T
            np.fill_diagonal(alike, -2.0)
            one = int(weight[members].argmin()) if small else int(alike.max(axis=1).argmax())
            other = int(alike[one].argmax())
            keep, gone = sorted((int(members[one]), int(members[other])))
            sums[keep] += sums[gone]
            weight[keep] += weight[gone]
            alive[gone] = False
            group[group == gone] = keep
        _, numbered = np.unique(group, return_inverse=True)
        views.append(View(numbered.astype(np.int64), size, min_even_share / size))
    return tuple(views)


def _view_stats(view: View, population: NDArray[np.int64]) -> ViewStats:
    counts = np.bincount(view.labels, weights=population)
    total = max(1.0, counts.sum())
    return ViewStats(
        clusters=len(counts),
        asked=view.asked,
        smallest_share=round(counts.min() / total, 6),
        largest_share=round(counts.max() / total, 6),
        least_share=round(view.least_share, 6),
    )
