"""The report of a small lineage: numbers that add up, samples with their reasons, one harmless HTML file."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from ops.config import StoreConfig
from ops.normalize import NORMALIZED_SCHEMA
from ops.report.attrition import read_funnels, report_attrition
from ops.report.config import AttritionConfig
from ops.report.funnel import UnbalancedFunnelError
from ops.shards import read_table, shard_names
from ops.store import build_store
from tests.builders import artifact_of, run_program
from tests.ops.report.test_markup import HOSTILE, read
from tests.ops.stores import Document, store_inputs

TEXTS = {
    "kept 0": "A page about tides that is kept.",
    "kept 1": "Another page, about harbours.",
    "leak": "Before it. What is the capital of Peru? After it. " + "filler " * 200,
    "near": "A page about tides that is nearly kept.",
    "hostile": " ".join(HOSTILE) + " \u202e backwards \x1b[31m",
    "foreign": "Ein Text über Gezeiten.",
    "poor": "buy buy buy",
    "exam": "Held out for the exam. What else?",
}
WEB = [
    Document("kept 0", (2, 3, 4)),
    Document("kept 1", (2, 3)),
    Document("leak", (5, 6, 7, 8), contaminated=True),
    Document("near", (2, 3, 9), fuzzy=True),
    Document("hostile", (2, 2), fuzzy=True),
    Document("foreign", (9, 9), language="de"),
    Document("poor", (8, 8), score=0.01, quality=0),
    Document("exam", (7, 7), held_out=True),
]


def table_of(schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


def near_table(ids: list[str], is_duplicate: list[bool]) -> pa.Table:
    """Every near-duplicate lost to the first document."""
    columns = {
        "survivor_source": ["web" if flag else None for flag in is_duplicate],
        "survivor_id": [WEB[0].id if flag else None for flag in is_duplicate],
        "containment": pa.array([0.97 if flag else None for flag in is_duplicate], pa.float32()),
    }
    return pa.table({"id": ids, "is_duplicate": is_duplicate, **columns})


def lineage(directory: Path) -> dict[str, Any]:
    """All inputs of the report; labels as `store_inputs` makes them, with the columns that people read added."""
    inputs: dict[str, Any] = store_inputs(directory, {"web": WEB}, shards=2)
    by_id = {document.id: document for document in WEB}
    [bare] = inputs["normalized"].values()
    tables, leaks, near = {}, {}, {}
    for name in shard_names(bare):
        ids = read_table(bare, name, ["id"])["id"].to_pylist()
        tables[name] = table_of(NORMALIZED_SCHEMA, [
            {"id": id, "text": TEXTS[by_id[id].name], "source_id": f"http://x.example/?<{by_id[id].name}>", "media_type": "text/html",
             "extractor": "e/1", "is_held_out": by_id[id].held_out} for id in ids
        ])  # fmt: skip
        start = TEXTS["leak"].index("What")
        hit = {"coverage": 0.83, "evaluation": "geography<b>", "item": "7", "start": start, "end": start + 28}
        exam = {"coverage": 0.4, "evaluation": "held_out/web", "item": WEB[7].id, "start": start, "end": start + 4}
        leaking = [by_id[id].contaminated for id in ids]
        leaks[name] = pa.table({"id": ids, "is_contaminated": leaking, "hits": [[hit, hit, exam] if leaks else [] for leaks in leaking]})
        near[f"web/{name}"] = near_table(ids, [by_id[id].fuzzy for id in ids])
    stats = {"documents": 8, "duplicates": 2, "blank": 1}
    inputs["normalized"] = {"web": artifact_of(directory / "normalized-full", tables, stats)}
    inputs["contamination"] = {"web": artifact_of(directory / "contamination-full", leaks)}
    inputs["fuzzy_duplicates"] = artifact_of(directory / "fuzzy-full", near)
    rule = StoreConfig(languages=("en",), min_quality=0.1)
    store = run_program(build_store, rule, directory / "store", **inputs)
    store.manifest.payload["config"] = rule.model_dump(mode="json")
    rejects = pa.table({"reason": ["binary"] * 3 + ["http-status"], "uri": ["http://a/<script>"] * 4, "detail": ["x", "y", "z", "404"]})
    lost = pa.table({"reason": ["rejected", "digest-mismatch", "rejected"], "uri": ["http://l/<b>"] * 3, "detail": ["404", "sha1", "404"]})
    index = {"records": 15, "index_rows": 40, "index_repeated": 2, "index_left_out": {"status": 20}}
    inputs["raw"] = {"web": artifact_of(directory / "raw", {"fetch_errors.parquet": lost}, index)}
    counts = {"records": 15, "documents": 11, "rejects": {"binary": 3, "http-status": 1}}
    inputs["extracted"] = {"web": artifact_of(directory / "extracted", {"rejects.parquet": rejects}, counts)}
    return {**inputs, "store": store}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return lineage(tmp_path_factory.mktemp("lineage"))


@pytest.fixture(scope="module")
def report(inputs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return run_program(report_attrition, AttritionConfig(samples_per_outcome=2), tmp_path_factory.mktemp("report"), **inputs)


def page(report: Artifact) -> str:
    with report.open("report.html") as stream:
        return stream.read().decode()


def samples(report: Artifact) -> dict[str, dict[str, Any]]:
    names = {document.id: document.name for document in WEB}
    return {names[sample["id"]]: sample for sample in report.read_json("samples.json")}


def marks(side: dict[str, Any], kind: str) -> list[str]:
    return [side["text"][mark["start"] : mark["end"]] for mark in side["marks"] if mark["kind"] == kind]


def test_the_funnel_adds_up_from_records_to_tokens(report: Artifact):
    [funnel] = read_funnels(report)
    assert (funnel.records, funnel.extracted, funnel.distinct) == (15, 11, 8)
    assert funnel.steps == [
        ("index rows", 40), ("wanted", 18), ("records", 15), ("extracted", 11), ("distinct", 8),
        ("not contaminated", 7), ("no fuzzy duplicate", 5),
        ("of a wanted language", 4), ("of enough quality", 3), ("to train on", 2),
    ]  # fmt: skip
    assert funnel.fetch_errors == {"rejected": 2, "digest-mismatch": 1}
    assert "http://l/<b>: sha1" in read(page(report)).text
    assert report.stats["documents_out"] == 2
    assert report.stats["tokens_out"] == 5


def test_every_outcome_is_shown_with_its_reason_and_what_it_stands_beside(report: Artifact):
    shown = samples(report)
    assert shown.keys() == TEXTS.keys()
    assert shown["leak"]["reason"] == "83% of a passage of geography<b>, item 7; 40% of a passage of held_out/web, item " + WEB[7].id[:12]
    assert marks(shown["leak"]["passage"], "reason") == ["What is the capital of Peru?"]
    assert shown["leak"]["beside"]["title"] == "held out"
    assert marks(shown["leak"]["beside"]["passage"], "reason") == ["What"]
    assert shown["near"]["reason"].startswith("97.0% of its word 3-grams stand in ")
    assert shown["near"]["beside"]["id"] == WEB[0].id
    assert marks(shown["near"]["passage"], "only") == ["nearly"]
    assert shown["foreign"]["reason"] == "de at 1.00; kept are en"
    assert shown["poor"]["reason"] == "a quality of 0.010; kept are those of 0.1 and more"
    assert shown["poor"]["beside"]["title"] == "kept, of the same source"
    assert shown["kept 0"]["beside"] is None
    assert shown["exam"]["beside"] is None, "nobody removed it"


def test_the_page_holds_every_text_and_obeys_none(report: Artifact):
    found = read(page(report))
    assert {tag for tag, _ in found.tags} <= {
        "html", "head", "meta", "title", "style", "body", "section", "article", "header", "h1", "h2", "h3", "p", "div", "span", "b", "i",
        "mark", "table", "tr", "th", "td",
    }  # fmt: skip
    named = {name for _, attributes in found.tags for name, _ in attributes}
    assert named <= {"charset", "http-equiv", "content", "name", "lang", "class", "style", "title", "dir"}
    for text in HOSTILE:
        assert text in found.text
    assert "http://x.example/?<leak>" in found.text
    assert "⟨U+202E⟩ backwards ␛[31m" in found.text
    assert "\u202e" not in page(report)


def test_the_page_is_one_file_that_loads_nothing(report: Artifact):
    text = page(report)
    policy = next(
        dict(attributes) for tag, attributes in read(text).tags if tag == "meta" and ("http-equiv", "Content-Security-Policy") in attributes
    )
    assert str(policy["content"]).startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert not re.search(r"<(script|link|img|iframe|object|base)\b|url\(|@import|\bsrc=|\bhref=", re.sub(r"(?s)<body>.*", "", text))


def test_the_same_documents_give_the_same_bytes(inputs: dict[str, Any], report: Artifact, tmp_path: Path):
    again = run_program(report_attrition, AttritionConfig(samples_per_outcome=2), tmp_path, **inputs)
    assert again.digest == report.digest


def test_inputs_that_do_not_belong_together_are_refused(inputs: dict[str, Any], tmp_path: Path):
    counts = {"records": 15, "documents": 12, "rejects": {"binary": 3}}
    other = {
        **inputs,
        "extracted": {"web": artifact_of(tmp_path / "extracted", {"part-00000-of-00001.parquet": pa.table({"text": []})}, counts)},
    }
    with pytest.raises(UnbalancedFunnelError, match="web: normalized took 12 and accounts for 11"):
        run_program(report_attrition, AttritionConfig(), tmp_path / "out", **other)


def test_progress_says_how_many_documents_are_left(inputs: dict[str, Any], tmp_path: Path):
    heard: list[tuple[int, int | None, str]] = []
    out = Writer(str(tmp_path), scratch_url=str(tmp_path / "s"), progress=lambda done, total, unit, **_: heard.append((done, total, unit)))
    report_attrition(AttritionConfig(), **inputs, out=out)
    assert heard[-1] == (8, 8, "documents")
    assert len(heard) == 2
