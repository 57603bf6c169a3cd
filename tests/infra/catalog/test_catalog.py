"""The catalog answers from storage's truth, and can be thrown away."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select, text

from infra.artifacts.journal import Decision, Observation, append
from infra.artifacts.store import ArtifactStore, CorruptArtifactError
from infra.catalog.catalog import Catalog
from infra.catalog.records import CatalogArtifact, Relative
from infra.catalog.tables import Table
from infra.storage.objects import replace
from tests.infra.artifacts.builders import begin, published
from tests.infra.catalog.postgres_server import Server


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path / "root"))


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    with Catalog.open(url) as opened:
        yield opened


def rows(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, read by a client that is not the catalog."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = {
            name: sorted((tuple(row) for row in connection.execute(select(table))), key=repr)
            for name, table in Table.metadata.tables.items()
        }
    engine.dispose()
    return found


def keys(found: list[CatalogArtifact]) -> list[tuple[str, str | None]]:
    return [(artifact.asset, artifact.partition) for artifact in found]


def assets(found: list[Relative]) -> list[tuple[int, str, str | None]]:
    return sorted((relative.distance, *key) for relative in found for key in keys(list(relative.artifacts)))


def test_a_rebuilt_catalog_equals_one_that_was_filled_as_things_happened(
    store: ArtifactStore, new_url: Callable[[], str], url: str
) -> None:
    with Catalog.open(url) as grown:
        raw = published(store, "raw", "web")
        grown.record(store, "raw", "web", raw.manifest.recipe)
        normalized = published(store, "normalized", "web", inputs={"raw": raw.digest})
        grown.record(store, "normalized", "web", normalized.manifest.recipe)
        merged = published(store, "store", None, inputs={"normalized": {"web": normalized.digest, "books": "f" * 64}})
        grown.record(store, "store", None, merged.manifest.recipe)
        failed = store.address("hero", None, "0123456789abcdef")
        first, _ = begin(store, failed)
        grown.record(store, "hero", None, "0123456789abcdef")
        first.end("stalled", {"exit_code": 124})
        second, _ = begin(store, failed)
        second.beat()
        grown.record(store, "hero", None, "0123456789abcdef")
        for entry in (
            Observation(digest=raw.digest, name="seconds", value=None, by="bench"),
            Observation(digest=raw.digest, name="curve", value=[1, {"é": 2.5}], by="bench"),
            Decision(digest=merged.digest, name="promote", outcome="no", reason="too small", by="ada"),
        ):
            append(store.root, entry)
            grown.record_entry(entry)
    rebuilt_url = new_url()
    with Catalog.open(rebuilt_url) as rebuilt:
        counts = rebuilt.rebuild(store)
    assert (counts.artifacts, counts.attempts, counts.observations, counts.decisions) == (3, 5, 2, 1)
    assert rows(rebuilt_url) == rows(url)
    assert {name: len(found) for name, found in rows(url).items()} == {
        "artifacts": 3,
        "files": 3,
        "inputs": 3,
        "attempts": 5,
        "observations": 2,
        "decisions": 1,
    }


def test_rebuilding_forgets_what_storage_no_longer_holds(store: ArtifactStore, catalog: Catalog, url: str) -> None:
    kept, removed = published(store, "raw", "kept"), published(store, "raw", "removed")
    entry = Observation(digest=kept.digest, name="seconds", value=1, by="bench")
    catalog.record_entry(entry)  # never appended to storage
    catalog.rebuild(store)
    shutil.rmtree(removed.url)
    catalog.rebuild(store)
    assert keys(catalog.by_asset("raw")) == [("raw", "kept")]
    assert [row[0] for row in rows(url)["attempts"]] == [kept.url]
    assert catalog.observations(kept.digest) == []


def test_rebuilding_or_recording_twice_changes_nothing(store: ArtifactStore, catalog: Catalog, url: str) -> None:
    artifact = published(store, "raw", "web")
    catalog.rebuild(store)
    once = rows(url)
    catalog.rebuild(store)
    catalog.record(store, "raw", "web", artifact.manifest.recipe)
    assert rows(url) == once


def test_a_broken_manifest_stops_a_rebuild_by_name(store: ArtifactStore, catalog: Catalog) -> None:
    artifact = published(store, "raw", "web")
    replace(f"{artifact.url}/.artifact.json", b"{")
    with pytest.raises(CorruptArtifactError, match=rf"{artifact.url}/\.artifact\.json is not a manifest"):
        catalog.rebuild(store)


def test_artifacts_are_found_by_digest_and_by_asset(store: ArtifactStore, catalog: Catalog) -> None:
    same = {"data.bin": b"equal bytes"}
    first, second = published(store, "raw", "a", files=same), published(store, "raw", "b", seed=1, files=same)
    other = published(store, "raw", "c")
    catalog.rebuild(store)
    assert first.digest == second.digest
    assert keys(catalog.by_digest(first.digest)) == [("raw", "a"), ("raw", "b")]
    assert keys(catalog.by_asset("raw", "c")) == [("raw", "c")]
    assert keys(catalog.by_asset("raw")) == [("raw", "a"), ("raw", "b"), ("raw", "c")]
    assert catalog.by_digest("0" * 64) == []
    (found,) = catalog.by_digest(other.digest)
    assert found.url == other.url
    assert found.stats == other.stats
    assert found.payload == other.manifest.payload
    assert (found.user, found.code_commit, found.size_bytes, found.file_count) == ("ada", "c" * 40, 7, 1)
    made_by = store.provenance(other)
    assert made_by is not None
    assert found.captured_at == made_by.captured_at


def test_lineage_walks_both_ways_by_digest(store: ArtifactStore, catalog: Catalog) -> None:
    web, books = published(store, "raw", "web"), published(store, "raw", "books")
    normal_web = published(store, "normalized", "web", inputs={"raw": web.digest})
    normal_books = published(store, "normalized", "books", inputs={"raw": books.digest})
    tokenizer = published(store, "tokenizer", inputs={"normalized": {"web": normal_web.digest}})
    both = {"web": normal_web.digest, "books": normal_books.digest}
    merged = published(store, "store", inputs={"normalized": both, "tokenizer": tokenizer.digest})
    catalog.rebuild(store)
    assert assets(catalog.upstream(merged.digest)) == [
        (1, "normalized", "books"),
        (1, "normalized", "web"),
        (1, "tokenizer", None),
        (2, "raw", "books"),
        (2, "raw", "web"),
    ]
    assert assets(catalog.downstream(web.digest)) == [(1, "normalized", "web"), (2, "store", None), (2, "tokenizer", None)]
    assert catalog.downstream(merged.digest) == catalog.upstream(web.digest) == []


def test_an_input_that_is_not_catalogued_is_still_an_ancestor(store: ArtifactStore, catalog: Catalog) -> None:
    artifact = published(store, "normalized", "web", inputs={"raw": "a" * 64})
    catalog.rebuild(store)
    assert catalog.upstream(artifact.digest) == [Relative(digest="a" * 64, distance=1, artifacts=())]


def test_a_walk_ends_though_a_program_gave_its_input_back_unchanged(store: ArtifactStore, catalog: Catalog) -> None:
    same = {"data.bin": b"unchanged"}
    raw = published(store, "raw", files=same)
    cleaned = published(store, "cleaned", files=same, inputs={"raw": raw.digest})
    after = published(store, "after", inputs={"cleaned": cleaned.digest})
    catalog.rebuild(store)
    assert [relative.digest for relative in catalog.upstream(after.digest)] == [raw.digest]
    assert [relative.digest for relative in catalog.downstream(raw.digest)] == [after.digest]


def test_a_wide_walk_is_asked_in_pieces(store: ArtifactStore, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.catalog.lineage.DIGESTS_PER_QUERY", 2)
    parts = {str(index): published(store, "raw", str(index)).digest for index in range(5)}
    merged = published(store, "store", inputs={"raw": parts})
    last = published(store, "release", inputs={"store": merged.digest})
    catalog.rebuild(store)
    assert assets(catalog.upstream(last.digest)) == [(1, "store", None), *((2, "raw", str(index)) for index in range(5))]


def test_attempts_are_listed_whether_or_not_anything_was_published(store: ArtifactStore, catalog: Catalog) -> None:
    address = store.address("hero", None, "0123456789abcdef")
    lost, _ = begin(store, address)
    lost.end("preempted")
    begin(store, address)
    published(store, "raw", "web")
    catalog.rebuild(store)
    assert [(attempt.token, attempt.ended) for attempt in catalog.attempts("hero")] == [(1, "preempted"), (2, None)]
    assert [attempt.ended for attempt in catalog.attempts("raw", "web")] == ["published"]


def test_observations_and_decisions_come_back_as_they_were(store: ArtifactStore, catalog: Catalog) -> None:
    digest = published(store, "hero").digest
    early = Observation(digest=digest, name="bits_per_byte", value={"web": 1.25}, by="evaluate")
    late = Observation(digest=digest, name="seconds", value=None, by="bench")
    decision = Decision(digest=digest, name="promote", outcome="yes", reason="beats the prediction", by="ada")
    for entry in (late, decision, early):
        catalog.record_entry(entry)
    assert catalog.observations(digest) == [early, late]
    assert catalog.decisions(digest) == [decision]
    assert catalog.observations("0" * 64) == []


def test_recorders_and_rebuilds_at_once_lose_nothing(store: ArtifactStore, url: str) -> None:
    recipes = {str(index): published(store, "raw", str(index)).manifest.recipe for index in range(12)}
    Catalog.open(url).close()

    def record(key: str) -> None:
        with Catalog.open(url) as mine:
            if key == "0":
                mine.rebuild(store)
            else:
                mine.record(store, "raw", key, recipes[key])

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(record, recipes))
    with Catalog.open(url) as catalog:
        assert {partition for _, partition in keys(catalog.by_asset("raw"))} == set(recipes)


def test_readers_are_not_kept_waiting_by_a_writer(catalog: Catalog, store: ArtifactStore, url: str) -> None:
    published(store, "raw", "web")
    catalog.rebuild(store)
    engine = create_engine(url)
    with engine.connect() as other:
        other.execute(text("DELETE FROM attempts"))
        assert keys(catalog.by_asset("raw")) == [("raw", "web")]
        assert len(catalog.attempts("raw")) == 1
        other.rollback()
    engine.dispose()


@pytest.mark.postgres
def test_both_databases_hold_equal_rows(store: ArtifactStore, tmp_path: Path, postgres: Server) -> None:
    """Everything that storage can hold, indexed into both from the same root."""
    raw = published(store, "raw", "web")
    published(store, "normalized", "web", inputs={"raw": raw.digest})
    lost, _ = begin(store, store.address("hero", None, "0123456789abcdef"))
    lost.end("stalled", {"exit_code": 124, "what": "é\n"})
    append(store.root, Observation(digest=raw.digest, name="curve", value=[1, {"é": 2.5}, None], by="bench"))
    append(store.root, Decision(digest=raw.digest, name="promote", outcome="no", reason="too small", by="ada"))
    urls = f"sqlite:///{tmp_path}/catalog.db", postgres.new_database()
    for url in urls:
        with Catalog.open(url) as catalog:
            catalog.rebuild(store)
    sqlite_rows, postgres_rows = rows(urls[0]), rows(urls[1].replace("postgresql://", "postgresql+psycopg2://"))
    assert postgres_rows == sqlite_rows
    assert all(sqlite_rows.values()), "every table has rows to compare"
