"""Domains out of clusters: the right view, the right folder, and a store whose counters balance over them."""

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from infra.artifacts.artifact import Artifact
from ops import bucket_spill
from ops.bucket_spill import allow_open_spills
from ops.cache import read_ledger, read_rule
from ops.config import ClusterStoreConfig
from ops.dataflow.errors import PoisonedShardsError
from ops.domains import ClusterDomains, domains_of_clusters
from ops.shards import read_table, shard_names
from ops.store import build_store, build_store_by_cluster
from ops.trace.places import places_of
from tests.builders import artifact_of, run_program
from tests.ops.stores import Document, store_inputs
from tests.ops.test_store import contents, outcome_of

VIEWS = ("cluster_30", "cluster_11", "cluster_2")
SOURCES = {
    source: [
        Document(
            f"{source}{number}",
            (2 + number % 40,) * (1 + number % 4),
            held_out=number % 7 == 0,
            fuzzy=number % 5 == 1,
            quality=number % 5,
        )
        for number in range(60)
    ]
    for source in ("a", "b")
}


def fine_cluster(document: Document) -> int:
    """-1 to 29, by the document's id."""
    return int(document.id[:8], 16) % 31 - 1


def assignments(directory: Path, sources: Mapping[str, Sequence[Document]], normalized: Mapping[str, Artifact]) -> dict[str, Artifact]:
    """What `assign_clusters` gives: every coarser cluster holds whole finer ones."""
    found = {}
    for source, documents in sources.items():
        by_id = {document.id: fine_cluster(document) for document in documents}
        tables = {}
        for name in shard_names(normalized[source]):
            ids = read_table(normalized[source], name, ["id"])["id"].to_pylist()
            views = {view: [-1 if by_id[id] < 0 else by_id[id] % size for id in ids] for view, size in zip(VIEWS, (30, 11, 2), strict=True)}
            tables[name] = pa.table({"id": ids, **{view: pa.array(rows, pa.int32()) for view, rows in views.items()}})
        found[source] = artifact_of(directory / source, tables, {"views": VIEWS, "clusters_digest": "c" * 64})
    return found


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    root = tmp_path_factory.mktemp("inputs")
    made = store_inputs(root, SOURCES, shards=2)
    return {**made, "cluster_assignments": assignments(root / "clusters", SOURCES, made["normalized"])}  # type: ignore[arg-type]


def by_cluster(inputs: Mapping[str, object], directory: Path, most: int = 12, **config: object) -> Artifact:
    settings = ClusterStoreConfig.model_validate({"domain_clusters": most, **config})
    return run_program(build_store_by_cluster, settings, directory, **inputs)  # type: ignore[arg-type]


def test_every_document_that_stays_is_in_the_bucket_of_its_cluster(inputs: dict[str, object], tmp_path: Path) -> None:
    built = by_cluster(inputs, tmp_path)
    expected: dict[str, set[tuple[str, str]]] = {}
    for source, documents in SOURCES.items():
        for document in documents:
            cluster = fine_cluster(document)
            domain = "cluster_11.none" if cluster < 0 else f"cluster_11.{cluster % 11:02}"
            outcome = outcome_of(document, ClusterStoreConfig(domain_clusters=12))
            folder = {"out": f"train/{domain}/q{document.quality}", "held_out": f"held_out/{domain}/all"}.get(outcome)
            if folder:
                expected.setdefault(folder, set()).add((source, document.id))
    found = contents(built)
    assert {folder: {row[:2] for row in rows} for folder, rows in found.items()} == expected
    assert any(folder.startswith("train/cluster_11.none") for folder in found)
    places = {document.id: document for documents in SOURCES.values() for document in documents}
    for rows in found.values():
        assert [tokens for _, _, tokens in rows] == [[*places[id].tokens, 0] for _, id, _ in rows]


def test_it_holds_the_documents_of_a_store_by_source_and_counts_them_alike(inputs: dict[str, object], tmp_path: Path) -> None:
    ours = by_cluster(inputs, tmp_path / "clusters")
    theirs = run_program(
        build_store, ClusterStoreConfig(domain_clusters=1), tmp_path / "sources",
        **{name: given for name, given in inputs.items() if name != "cluster_assignments"},
    )  # type: ignore[arg-type] # fmt: skip
    one, other = read_ledger(ours), read_ledger(theirs)
    assert (one.counters, one.total) == (other.counters, other.total)
    for split in ("train", "held_out"):
        totals = [(sum(b.documents for b in found), sum(b.tokens for b in found)) for found in (one.split(split), other.split(split))]  # type: ignore[arg-type]
        assert totals[0] == totals[1]
    assert one.sources == {"a": "cluster_11", "b": "cluster_11"}


def test_a_traced_document_lies_where_its_tokens_are(inputs: dict[str, object], tmp_path: Path) -> None:
    built = by_cluster(inputs, tmp_path)
    document = SOURCES["b"][3]
    [place] = places_of(built, read_ledger(built), frozenset({document.id}))
    assert place.folder.startswith("train/cluster_11.")
    rows = contents(built)[place.folder]
    assert rows[place.index] == ("b", document.id, [*document.tokens, 0])
    assert place.end - place.start == len(document.tokens) + 1


def test_the_rows_of_a_batch_change_no_byte(inputs: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = by_cluster(inputs, tmp_path / "one")
    monkeypatch.setattr("ops.store.ROWS", 7)
    assert by_cluster(inputs, tmp_path / "two").digest == one.digest


def test_domains_travel_to_workers(inputs: dict[str, object]) -> None:
    domains = domains_of_clusters(inputs["cluster_assignments"], 11)  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(domains)) == domains


@pytest.mark.parametrize(
    ("most", "view"), [(30, "cluster_30"), (29, "cluster_11"), (11, "cluster_11"), (10, "cluster_2"), (2, "cluster_2")]
)
def test_the_finest_view_that_is_coarse_enough_gives_the_domains(inputs: dict[str, object], most: int, view: str) -> None:
    assert domains_of_clusters(inputs["cluster_assignments"], most).view == view  # type: ignore[arg-type]


def test_a_view_coarser_than_any_is_refused_with_those_there_are(inputs: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no view has at most 1 clusters, there are cluster_30, cluster_11, cluster_2"):
        domains_of_clusters(inputs["cluster_assignments"], 1)  # type: ignore[arg-type]


def test_sources_of_different_clusters_are_refused(inputs: dict[str, object], tmp_path: Path) -> None:
    given: dict[str, Artifact] = dict(inputs["cluster_assignments"])  # type: ignore[call-overload]
    given["b"] = artifact_of(tmp_path, {}, {"views": VIEWS, "clusters_digest": "d" * 64})
    with pytest.raises(ValueError, match="2 different sets of clusters"):
        domains_of_clusters(given, 11)


def test_a_cluster_that_the_view_does_not_have_is_refused(inputs: dict[str, object], tmp_path: Path) -> None:
    given: dict[str, Artifact] = dict(inputs["cluster_assignments"])  # type: ignore[call-overload]
    rows = {name: read_table(given["a"], name) for name in shard_names(given["a"])}
    tables = {name: table.set_column(2, "cluster_11", pa.array([11] * table.num_rows, pa.int32())) for name, table in rows.items()}
    given["a"] = artifact_of(tmp_path / "a", tables, dict(given["a"].stats))
    with pytest.raises(PoisonedShardsError, match=r"clusters 11\.\.11 are not in -1\.\.10"):
        by_cluster({**inputs, "cluster_assignments": given}, tmp_path / "store")


def test_assignments_of_other_documents_are_refused(inputs: dict[str, object], tmp_path: Path) -> None:
    given: dict[str, Artifact] = dict(inputs["cluster_assignments"])  # type: ignore[call-overload]
    with pytest.raises(PoisonedShardsError, match="MisalignedShardError"):
        by_cluster({**inputs, "cluster_assignments": {**given, "a": given["b"]}}, tmp_path)


def test_names_sort_as_the_clusters_do() -> None:
    names = ClusterDomains({}, "cluster_120").names
    assert list(names) == sorted(names)
    assert (names[7], names[-1], len(names)) == ("cluster_120.007", "cluster_120.none", 121)


def test_the_rule_of_a_store_is_read_back_from_its_recipe(inputs: dict[str, object], tmp_path: Path) -> None:
    built = by_cluster(inputs, tmp_path)
    rule = ClusterStoreConfig(domain_clusters=11, min_quality=0.5)
    built.manifest.payload["config"] = rule.model_dump(mode="json")
    assert read_rule(built) == rule


def test_a_process_may_open_a_file_for_each_bucket_or_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(bucket_spill.resource, "getrlimit", lambda kind: (500, 1000))
    monkeypatch.setattr(bucket_spill.resource, "setrlimit", lambda kind, limits: set_to.append(limits))
    allow_open_spills(100)
    assert set_to == []
    allow_open_spills(200)
    assert set_to == [(656, 1000)]
    with pytest.raises(ValueError, match=r"600 buckets need 1456 open files and this machine allows 1000"):
        allow_open_spills(600)
