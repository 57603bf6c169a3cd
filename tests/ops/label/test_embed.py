"""Vectors: near for texts that share rare words, the same alone and in a batch; clusters: what was planted, nested, never too small."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from ops.label.config import AssignConfig, ClusterConfig, EmbedConfig, EmbedderConfig
from ops.label.embed import LIMIT, Embedder, embed, fit_embedder, in_steps, unit_vectors
from ops.label.embed_assign import assign_clusters, assigned
from ops.label.embed_clusters import cluster_embeddings, nested_views, spherical_k_means
from ops.shards import read_table, shard_names
from tests.builders import artifact_of, run_program
from tests.ops.normalized import id_of, normalized

COMMON = ["the", "of", "and", "in", "to"] * 12
TOPICS = {topic: [f"{topic}{n}" for n in range(40)] + COMMON for topic in ("sea", "law", "cell", "code", "star", "bread")}


def page(topic: str, seed: int, words: int = 80) -> str:
    return " ".join(random.Random(f"{topic} {seed}").choices(TOPICS[topic], k=words))


PAGES = {topic: [page(topic, n) for n in range(30)] for topic in TOPICS}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return normalized(tmp_path_factory.mktemp("in"), [text for pages in PAGES.values() for text in pages] + ["", "!!!"], shards=3)


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory, source: Artifact) -> Artifact:
    return run_program(fit_embedder, EmbedderConfig(), tmp_path_factory.mktemp("embedder"), normalized={"web": source})


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory: pytest.TempPathFactory, source: Artifact, embedder: Artifact) -> Artifact:
    return run_program(embed, EmbedConfig(), tmp_path_factory.mktemp("embeddings"), normalized=source, embedder=embedder)


def of_length_one(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def writer(directory: Path) -> Writer:
    return Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"))


def test_pages_of_a_topic_are_nearer_than_pages_of_two(embedder: Artifact) -> None:
    units = unit_vectors(Embedder.read(embedder)(pa.array([text for pages in PAGES.values() for text in pages[:8]])))
    alike = units @ units.T
    same = np.kron(np.eye(len(TOPICS)), np.ones((8, 8))).astype(bool)
    assert alike[same].mean() > alike[~same].mean() + 0.2
    assert np.diag(alike) == pytest.approx(1.0, abs=1e-5)


def test_what_stands_behind_the_head_does_not_count(embedder: Artifact) -> None:
    short = replace(Embedder.read(embedder), max_chars=200)
    head, rest = page("sea", 1)[:200], page("law", 1)
    assert np.array_equal(short(pa.array([head])), short(pa.array([f"{head}{rest}"])))
    assert not np.array_equal(short(pa.array([head])), Embedder.read(embedder)(pa.array([f"{head} {rest}"])))


def test_case_and_punctuation_do_not_count_and_word_order_hardly() -> None:
    embedder = Embedder(np.ones(1 << 12), 12, 1_000, 192, 1)
    one, same, turned, other = unit_vectors(
        embedder(pa.array(["The sea is calm today.", "the SEA, is calm -- today", "today is the sea calm", "a court of law sat"]))
    )
    assert one @ same == pytest.approx(1, abs=1e-6)
    assert one @ same > one @ turned > one @ other + 0.2


def test_a_batch_gives_what_each_row_gives_alone(embedder: Artifact) -> None:
    texts = [page("sea", 1), "", "海は静かです。港は静かです。" * 9, page("law", 2, 900), "x"]
    read = Embedder.read(embedder)
    assert np.array_equal(read(pa.array(texts)), np.concatenate([read(pa.array([text])) for text in texts]))


def test_rounding_to_small_numbers_keeps_the_direction(embedder: Artifact) -> None:
    rng = np.random.default_rng(0)
    units = of_length_one(rng.normal(size=(500, 192)))
    assert (unit_vectors(in_steps(units)) * units).sum(axis=1).mean() >= 0.9998
    assert np.abs(in_steps(units)).max() < 127  # nothing is cut off at 0.6
    assert LIMIT == 0.6


def test_the_program_writes_a_row_for_each_document(source: Artifact, embeddings: Artifact) -> None:
    assert shard_names(embeddings) == shard_names(source)
    for name in shard_names(source):
        assert read_table(embeddings, name)["id"].equals(read_table(source, name)["id"])
    assert embeddings.stats == {"documents": 182, "empty": 2, "clipped": 0}


def test_bytes_do_not_depend_on_the_batch(tmp_path: Path, source: Artifact, embedder: Artifact, embeddings: Artifact) -> None:
    again = run_program(embed, EmbedConfig(batch_rows=7), tmp_path, normalized=source, embedder=embedder)
    assert again.digest == embeddings.digest


def test_clusters_are_the_topics_and_nested_views_hold_whole_ones(tmp_path: Path, source: Artifact, embeddings: Artifact) -> None:
    config = ClusterConfig(clusters=12, views=(6, 2), rows_per_source=1_000)
    clusters = run_program(cluster_embeddings, config, tmp_path / "clusters", embeddings={"web": embeddings})
    made = {"normalized": source, "embeddings": embeddings, "clusters": clusters}
    result = run_program(assign_clusters, AssignConfig(), tmp_path / "assigned", **made)
    assert result.stats["clusters_digest"] == clusters.digest
    rows = {row["id"]: row for name in shard_names(result) for row in read_table(result, name).to_pylist()}
    assert list(clusters.stats["views"]) == ["cluster_12", "cluster_6", "cluster_2"]
    assert all(view["smallest_share"] >= view["least_share"] for view in clusters.stats["views"].values())
    assert (clusters.stats["rows"], clusters.stats["rows_by_source"]) == (180, {"web": 182})
    topics = [Counter(rows[id_of(text)]["cluster_6"] for text in pages) for pages in PAGES.values()]
    assert min(max(found.values()) for found in topics) >= 28  # of 30 pages
    assert len({found.most_common(1)[0][0] for found in topics}) == 6
    for finer, coarser in (("cluster_12", "cluster_6"), ("cluster_6", "cluster_2")):
        assert len({(row[finer], row[coarser]) for row in rows.values()}) == len({row[finer] for row in rows.values()})
    assert {rows[id_of(text)]["cluster_2"] for text in ("", "!!!")} == {-1}
    assert run_program(assign_clusters, AssignConfig(batch_rows=5), tmp_path / "again", **made).digest == result.digest
    samples = result.read_json("samples.json")
    by_text = {text[:240]: rows[id_of(text)] for pages in PAGES.values() for text in pages}
    assert [sample["cluster"] for sample in samples] == [0, 0, 0, 1, 1, 1]
    assert all(by_text[sample["text"]]["cluster_2"] == sample["cluster"] for sample in samples)


@pytest.mark.parametrize("seed", range(5))
def test_no_cluster_of_a_view_is_smaller_than_its_share(seed: int) -> None:
    rng = np.random.default_rng(seed)
    centroids = of_length_one(rng.normal(size=(60, 16)))
    population = np.maximum(1, (1_000 * rng.pareto(0.7, 60))).astype(np.int64)
    views = nested_views(centroids, population, (20, 5), 0.4)
    for size, view in zip((20, 5), views[1:], strict=True):
        counts = np.bincount(view.labels, weights=population)
        assert view.least_share == 0.4 / size
        assert len(counts) <= size
        assert counts.min() >= 0.4 * population.sum() / size


def test_k_means_finds_planted_centres_and_each_round_fits_better(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    centres = np.eye(8, 24)
    units = of_length_one(np.repeat(centres, 50, axis=0) + rng.normal(scale=0.05, size=(400, 24)))
    found = spherical_k_means(units, 8, 20, 0, writer(tmp_path))
    assert sorted(np.bincount(found.labels).tolist()) == [50] * 8
    one = spherical_k_means(units, 8, 1, 5, writer(tmp_path))
    assert found.mean_similarity >= one.mean_similarity


def test_an_assignment_agrees_with_cosines_in_double_precision() -> None:
    rng = np.random.default_rng(4)
    vectors, centroids = rng.integers(-127, 128, (300, 64)).astype(np.int8), rng.integers(-127, 128, (20, 64)).astype(np.int8)
    cosines = vectors.astype(float) @ centroids.astype(float).T
    cosines /= np.linalg.norm(vectors.astype(float), axis=1)[:, None] * np.linalg.norm(centroids.astype(float), axis=1)
    labels, similarity = assigned(vectors, centroids)
    assert labels.tolist() == cosines.argmax(axis=1).tolist()
    assert similarity == pytest.approx(cosines.max(axis=1))


def test_more_clusters_than_vectors_are_refused(tmp_path: Path) -> None:
    table = pa.table({"id": ["a", "b"], "embedding": pa.FixedSizeListArray.from_arrays(pa.array([1, 0, 1, 0], pa.int8()), 2)})
    source = artifact_of(tmp_path / "in", {"part-00000-of-00001.parquet": table})
    with pytest.raises(ValueError, match="2 rows hold fewer than 3 different vectors; ask for fewer clusters"):
        run_program(cluster_embeddings, ClusterConfig(clusters=3), tmp_path / "out", embeddings={"web": source})
