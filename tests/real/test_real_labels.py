"""Language and quality of real corpora."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from ops.label.config import LanguageConfig, QualityConfig
from ops.label.language import label_language, label_texts
from ops.label.quality import score_quality
from tests.builders import run_program
from tests.real.corpora import corpus, rows_of
from tests.real.real_data import needs_real_data

pytestmark = needs_real_data

NOVELS = {
    "eltec_eng": "en", "eltec_deu": "de", "eltec_fra": "fr", "eltec_spa": "es", "eltec_por": "pt", "eltec_pol": "pl",
    "eltec_hun": "hu", "eltec_rom": "ro", "eltec_ukr": "uk", "eltec_srp": "sr", "chinese_poetry": "zh",
}  # fmt: skip


@pytest.mark.parametrize("name", NOVELS)
def test_novels_are_in_their_language_and_of_the_highest_quality(tmp_path: Path, name: str) -> None:
    source = corpus(tmp_path, name)
    language = run_program(label_language, LanguageConfig(), tmp_path / "language", normalized=source).stats
    assert language["languages"].get(NOVELS[name], 0) >= 0.98 * language["documents"]
    quality = run_program(score_quality, QualityConfig(), tmp_path / "quality", normalized=source).stats
    assert quality["buckets"]["4"] >= 0.95 * quality["documents"]


@pytest.mark.parametrize(("name", "share"), [("code", 0.95), ("peps", 0.98), ("openlogic", 0.98), ("wikipedia_en", 0.98)])
def test_code_markup_and_articles_are_not_mistaken_for_junk(tmp_path: Path, name: str, share: float) -> None:
    quality = run_program(score_quality, QualityConfig(), tmp_path / "quality", normalized=corpus(tmp_path, name)).stats
    assert quality["buckets"]["4"] >= share * quality["documents"]
    assert quality["buckets"]["0"] <= 1  # a file of nothing but glyph widths


def test_three_hundred_languages_never_fall_into_the_lower_buckets(tmp_path: Path) -> None:
    quality = run_program(score_quality, QualityConfig(), tmp_path / "quality", normalized=corpus(tmp_path, "udhr")).stats
    assert quality["documents"] > 300
    assert quality["buckets"]["0"] == quality["buckets"]["1"] == quality["buckets"]["2"] == 0


def test_the_fast_detector_has_the_word_only_where_fasttext_says_the_same() -> None:
    """387 translations of one text: most are in languages that eldc does not know."""
    texts = pa.array([row["text"][500:] for row in rows_of("udhr")])
    fast, _, detectors = label_texts(texts, LanguageConfig())
    slow, _, _ = label_texts(texts, LanguageConfig(detector="fasttext"))
    assert fast == slow
    assert detectors.count("eldc") > 40


@pytest.mark.parametrize(("language", "name", "script"), [
    ("ru", "react_docs_ru", "[\u0400-\u04ff]"), ("ja", "react_docs_ja", "[\u3040-\u30ff]"), ("zh", "react_docs_zh-hans", "[\u4e00-\u9fff]"),
])  # fmt: skip
def test_pages_full_of_code_are_in_the_language_of_their_script_and_untranslated_ones_in_english(
    language: str, name: str, script: str
) -> None:
    texts = [row["text"] for row in rows_of(name)]
    found, _, _ = label_texts(pa.array(texts), LanguageConfig())
    letters = [(len(re.findall(script, text)), len(re.findall(r"[^\W\d_]", text))) for text in texts]
    is_translated = [own > 0.02 * all_ for own, all_ in letters]
    assert 5 < sum(is_translated) < len(texts)
    assert found == [language if translated else "en" for translated in is_translated]


def test_every_language_of_the_novels_is_named_right_in_998_of_1000_pieces() -> None:
    wrong, pieces = {}, 0
    for name, language in NOVELS.items():
        texts = [row["text"][at : at + 4_000] for row in rows_of(name) for at in range(0, len(row["text"]) - 4_000, 4_000)][:200]
        found, _, _ = label_texts(pa.array(texts), LanguageConfig())
        pieces += len(texts)
        if errors := sum(label != language for label in found):
            wrong[name] = errors
    print(f"\n{pieces} pieces of {len(NOVELS)} languages; wrong: {wrong}")
    assert sum(wrong.values()) <= 0.002 * pieces
