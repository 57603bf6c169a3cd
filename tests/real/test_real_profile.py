"""The `real` profile's data half, through Dagster and dispatched jobs: every archive, page, corpus and evaluation."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from infra.artifacts.artifact import Artifact
from infra.artifacts.store import ArtifactStore
from ops.cache import read_ledger
from tests.real.real_data import REAL_DATA as DATA
from tests.real.real_data import needs_real_data

pytestmark = [needs_real_data, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).parents[2]
SOURCES = {"corpus", "pages", "warcs"}

Published = Mapping[tuple[str, str | None], Artifact]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `seaway demo --profile real --job data` left everything."""
    home = tmp_path_factory.mktemp("real")
    environment = {key: value for key, value in os.environ.items() if key not in ("DAGSTER_HOME", "SEAWAY_PROFILE")}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("seaway")), "demo", "--profile", "real", "--job", "data"],
        cwd=REPOSITORY,
        env={**environment, "SEAWAY_HOME": str(home), "SEAWAY_REAL_DATA": str(DATA)},
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    return home / "real"


@pytest.fixture(scope="module")
def published(home: Path) -> Published:
    """Everything that it published, by asset and partition."""
    store = ArtifactStore(str(home / "artifacts"))
    return {(asset, partition): artifact for asset, partition, _, artifact in store.artifacts()}


def stats_of(published: Published, asset: str) -> dict[str, dict[str, Any]]:
    return {source: published[asset, source].stats for source in SOURCES}


def test_every_record_ends_as_a_document_or_a_typed_reject(published: Published) -> None:
    for source, stats in stats_of(published, "extracted").items():
        assert stats["records"] == stats["documents"] + sum(stats["rejects"].values()), source
        assert stats["documents"] > 0, source


def test_every_warc_and_html_file_was_taken_in(published: Published) -> None:
    archives = [path for pattern in ("*.warc*", "*.arc*", "*.ARC") for path in (DATA / "crawl").rglob(pattern)]
    pages = list(DATA.rglob("*.html.gz"))
    assert published["raw", "warcs"].stats["records"] == len(set(archives)) > 200
    assert published["raw", "pages"].stats["records"] >= len(pages) > 600


def test_the_stores_counters_balance_over_all_documents(published: Published) -> None:
    ledger = read_ledger(published["store", None])
    for source, normalized in stats_of(published, "normalized").items():
        counted = ledger.counters[source].documents
        assert counted.read == normalized["documents"], source
        assert counted.read == sum(value for name, value in counted.model_dump().items() if name != "read"), source


def test_no_source_is_wiped(published: Published) -> None:
    assert published["fuzzy_duplicates", None].stats["alarms"] == []


def test_dagster_shows_how_often_each_language_is_named_right(home: Path):
    with dg.DagsterInstance.from_config(str(home / "dagster")) as instance:
        wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey("language"), asset_partitions=["corpus"])
        [record] = instance.fetch_materializations(wanted, limit=1).records
    assert record.asset_materialization is not None
    shown = record.asset_materialization.metadata
    accuracy = shown["accuracy"]
    assert isinstance(accuracy, dg.TableMetadataValue)
    rows = {str(row.data["language"]): row.data for row in accuracy.records}
    for language, row in rows.items():
        print(f"{language}  {row['right']:>4} of {row['documents']:>4}  {row['accuracy']:.4f}")
    assert len(rows) >= 34
    assert shown["known_documents"].value == sum(int(str(row["documents"])) for row in rows.values()) > 800
    assert float(str(shown["accuracy_of_known"].value)) >= 0.998
    assert all(float(str(row["accuracy"])) >= 0.95 for row in rows.values()), rows


def test_all_evaluations_are_guarded_and_held_out_text_is_kept_from_training(published: Published) -> None:
    guarded = published["evaluation_ngrams", None].stats["evaluations"]
    assert {"gsm8k", "humaneval", "mmlu", "arc", "boolq", "truthfulqa"} < guarded.keys()
    assert all(row["features"] > 0 for row in guarded.values()), guarded
    found = {source: dict(published["contamination", source].stats["evaluations"]) for source in SOURCES}
    assert found["corpus"].pop("held_out/corpus") > 0, "its drafts exist in versions"
    assert found["pages"].pop("held_out/pages") > 0, "and pages were recorded more than once"
    # Armstrong's words on the moon, which TruthfulQA asks for and an encyclopaedia quotes. "Who are you?", which it asks too, stands
    # in a poem, a novel and a code table: function words alone are nobody's item. No short answer flags a document.
    assert found == {"corpus": {"truthfulqa": 1}, "pages": {}, "warcs": {}}
