"""Tokens of what is left of documents without their repeated paragraphs: the right text, and a way back to it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from infra.artifacts.artifact import Artifact
from ops.cache import TokenCache, read_ledger
from ops.config import StoreConfig, TokenizeConfig, TokenizeRestConfig
from ops.dataflow.errors import PoisonedShardsError
from ops.dataflow.shard import Shard, Tally
from ops.dedup.config import ParagraphDedupConfig
from ops.dedup.paragraphs import paragraph_duplicates
from ops.dedup.spans import SPANS, without_spans
from ops.shards import read_table, shard_names
from ops.store import build_store
from ops.tokens import EncodeDocuments, tokenize
from ops.tokens_rest import EncodeRest, tokenize_without_repeats
from ops.trace.places import places_of
from tests.builders import artifact_of, run_program
from tests.ops.normalized import id_of, normalized

NOTICE = "This page may be copied by anybody; größer ist besser, sagt das 海."
TEXTS = {
    "a": [f"page {n} of the harbour\n{NOTICE}\nand what follows, {n}\n" for n in range(12)],
    "b": [
        NOTICE,
        f"\n{NOTICE}\n \n",
        *(f"{NOTICE}\nthe other source, {n} words\n{NOTICE}" for n in range(9)),
        "nothing in it repeats at all",
    ],
}
HELD_OUT = f"an exam keeps its\n{NOTICE}\n{NOTICE}\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tokenizer_artifact: Artifact) -> dict[str, Any]:
    """Two sources, what repeats in them, and the tokens of the rest."""
    root = tmp_path_factory.mktemp("rest")
    sources = {"a": normalized(root / "a", TEXTS["a"], shards=2, held_out=[HELD_OUT]), "b": normalized(root / "b", TEXTS["b"], shards=3)}
    marks = run_program(paragraph_duplicates, ParagraphDedupConfig(min_chars=20, alarm_share=1.0), root / "marks", normalized=sources)
    return {
        "root": root,
        "sources": sources,
        "marks": marks,
        "tokens": {key: rest_of(root / f"rest-{key}", key, sources, marks, tokenizer_artifact) for key in sources},
    }


def rest_of(directory: Path, key: str, sources: dict[str, Artifact], marks: Artifact, tokenizer: Artifact, **config: Any) -> Artifact:
    settings = TokenizeRestConfig(source=key, **config)
    return run_program(
        tokenize_without_repeats, settings, directory, normalized=sources[key], tokenizer=tokenizer, paragraph_duplicates=marks
    )


def left(text: str, spans: list[dict[str, Any]]) -> str:
    """A text without its spans, one byte at a time; nothing where only blanks are left."""
    inside = {byte for span in spans for byte in range(span["start"], span["end"])}
    rest = bytes(byte for place, byte in enumerate(text.encode()) if place not in inside).decode()
    return "" if rest.isspace() else rest


def test_tokens_spell_what_is_left_and_lie_beside_the_documents(built: dict[str, Any], tokenizer: Tokenizer) -> None:
    cut = 0
    for key, source in built["sources"].items():
        tokens = built["tokens"][key]
        assert shard_names(tokens) == shard_names(source)
        for name in shard_names(source):
            documents, rows, marked = (
                read_table(one, at).to_pylist() for one, at in ((source, name), (tokens, name), (built["marks"], f"{key}/{name}"))
            )
            for document, row, mark in zip(documents, rows, marked, strict=True):
                rest = left(document["text"], mark["spans"])
                assert row["id"] == document["id"]
                assert tokenizer.decode(row["input_ids"], skip_special_tokens=False) == rest
                assert row["bytes"] == len(rest.encode())
                cut += len(document["text"].encode()) - len(rest.encode())
                assert not document["is_held_out"] or rest == document["text"]
    stats = {key: tokens.stats for key, tokens in built["tokens"].items()}
    assert cut == sum(one["bytes_cut"] for one in stats.values()) > 0
    assert (stats["a"]["documents_cut"], stats["a"]["documents_emptied"]) == (12, 0)
    assert (stats["b"]["documents_cut"], stats["b"]["documents_emptied"]) == (11, 2)


def test_a_document_of_which_nothing_is_left_is_emptied_and_the_others_are_found_with_all_their_tokens(
    built: dict[str, Any], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    sets: dict[str, dict[str, Artifact]] = {kind: {} for kind in ("language", "quality", "contamination")}
    flags: dict[str, pa.Table] = {}
    for key, source in built["sources"].items():
        ids = {name: read_table(source, name, ["id"])["id"] for name in shard_names(source)}
        columns = {
            "language": {"language": "en"},
            "contamination": {"is_contaminated": False},
            "quality": {"score": np.float32(0.5), "quality_bucket": np.int8(2)},
        }
        for kind, values in columns.items():
            tables = {
                name: pa.table({"id": rows, **{at: pa.repeat(pa.scalar(value), len(rows)) for at, value in values.items()}})
                for name, rows in ids.items()
            }
            sets[kind][key] = artifact_of(tmp_path / kind / key, tables)
        flags |= {
            f"{key}/{name}": pa.table({"id": rows, "is_duplicate": pa.repeat(pa.scalar(False), len(rows))}) for name, rows in ids.items()
        }
    duplicates = artifact_of(tmp_path / "flags", flags)
    store = run_program(
        build_store, StoreConfig(), tmp_path / "store", normalized=built["sources"], tokens=built["tokens"], **sets,
        exact_duplicates=duplicates, fuzzy_duplicates=duplicates,
    )  # fmt: skip
    ledger = read_ledger(store)
    assert ledger.counters["b"].documents.model_dump(exclude_defaults=True) == {
        "read": 12, "emptied": 2, "out": 10,
        **dict.fromkeys(("contaminated", "fuzzy", "exact", "language", "quality", "held_out_duplicate", "held_out"), 0),
    }  # fmt: skip
    assert sum(bucket.bytes for bucket in ledger.buckets) == sum(tokens.stats["bytes"] for tokens in built["tokens"].values())
    gone = {id_of(TEXTS["b"][0]), id_of(TEXTS["b"][1])}
    assert list(places_of(store, ledger, frozenset(gone))) == []
    for text in TEXTS["b"][2:]:
        [place] = places_of(store, ledger, frozenset({id_of(text)}))
        cache = TokenCache.open(store, place.folder)
        assert tokenizer.decode(cache.tokens[place.start : place.end - 1].tolist()) == text.replace(f"{NOTICE}\n", "").replace(NOTICE, "")


def test_without_repeats_the_tokens_are_those_of_tokenize(built: dict[str, Any], tokenizer_artifact: Artifact, tmp_path: Path) -> None:
    source = {"c": normalized(tmp_path / "c", ["alone in the world, whatever it says", "and this one too, of another kind"])}
    marks = run_program(paragraph_duplicates, ParagraphDedupConfig(min_chars=20), tmp_path / "marks", normalized=source)
    plain = run_program(tokenize, TokenizeConfig(), tmp_path / "plain", normalized=source["c"], tokenizer=tokenizer_artifact)
    assert rest_of(tmp_path / "rest", "c", source, marks, tokenizer_artifact).digest == plain.digest


def test_a_batch_may_begin_anywhere_in_its_shard(built: dict[str, Any], tokenizer_artifact: Artifact) -> None:
    """As when the rows that poison a shard are looked for."""
    encode = EncodeRest(EncodeDocuments(TokenizeConfig(), tokenizer_artifact), built["marks"], "a")
    [name, _] = shard_names(built["sources"]["a"])
    rows = read_table(built["sources"]["a"], name, ["id", "text"]).combine_chunks().to_batches()[0]
    expected = read_table(built["tokens"]["a"], name)
    for start in range(rows.num_rows):
        [found] = encode(Shard(name, 0), iter([rows.slice(start, 2)]), Tally())
        assert found.to_pylist() == expected.slice(start, 2).to_pylist()


def test_marks_of_other_documents_are_refused(built: dict[str, Any], tokenizer_artifact: Artifact, tmp_path: Path) -> None:
    other = {"a": normalized(tmp_path / "other", ["of another build, and no page of a harbour"], shards=2)}
    marks = run_program(paragraph_duplicates, ParagraphDedupConfig(min_chars=20), tmp_path / "marks", normalized=other)
    with pytest.raises(PoisonedShardsError, match=r"MisalignedShardError.*know no .*; mark these documents"):
        rest_of(tmp_path / "rest", "a", built["sources"], marks, tokenizer_artifact)


@settings(deadline=None)
@given(st.lists(st.tuples(st.text("aß海\n ", max_size=12), st.lists(st.integers(0, 12), max_size=6)), max_size=8), st.integers(0, 3))
def test_cutting_is_what_leaving_bytes_out_one_by_one_is(rows: list[tuple[str, list[int]]], first: int) -> None:
    """Of any slice of a column; edges may touch."""
    texts, spans = [], []
    for text, edges in rows:
        places = sorted({len(text[:edge].encode()) for edge in edges})
        texts.append(text)
        spans.append(
            [{"start": a, "end": b, "survivor_source": "s", "survivor_id": "i"} for a, b in zip(places[::2], places[1::2], strict=False)]
        )
    if rows and len(spans[0]) == 1 and spans[0][0]["end"] - spans[0][0]["start"] == 2 and texts[0].isascii():
        start = spans[0][0]["start"]
        spans[0] = [{**spans[0][0], "end": start + 1}, {**spans[0][0], "start": start + 1}]
    found = without_spans(pa.array(texts, pa.string())[first:], pa.array(spans, SPANS)[first:])
    found.validate(full=True)
    inside = [{byte for span in row for byte in range(span["start"], span["end"])} for row in spans]
    expected = [bytes(b for at, b in enumerate(text.encode()) if at not in cut).decode() for text, cut in zip(texts, inside, strict=True)]
    assert found.to_pylist() == expected[first:]
