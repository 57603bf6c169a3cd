"""Language and quality of real corpora."""

from pathlib import Path

import pytest

from ops.config import LanguageConfig, QualityConfig
from ops.label.language import label_language
from ops.label.quality import score_quality
from tests.builders import run_program
from tests.real.corpora import corpus
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
