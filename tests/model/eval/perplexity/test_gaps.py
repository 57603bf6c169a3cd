"""Gaps between models of different vocabularies, to the byte; and the page that shows them."""

import html
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from infra.archive.records import escape
from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from model.eval.perplexity.compare import compare_models, compare_with_repeats
from model.eval.perplexity.gap import MismatchedDocumentsError, document_gaps, roll_up, slice_gaps, worst
from model.eval.perplexity.heat import LEVELS, heat_of, shade_of
from model.eval.perplexity.noise import signal_to_noise
from model.eval.perplexity.score import score_slices
from model.eval.perplexity.scored import DOCUMENTS_FILE, ScoredDocument, read_documents, to_table
from model.eval.tasks.language_model import LanguageModel, of_folder
from ops.evaluation.perplexity.config import PerplexityGapConfig
from ops.evaluation.perplexity.slices import Slice, TextDocument, supervised
from tests.builders import artifact_of, run_program
from tests.model.eval.tasks.released import SENTENCES, release

ODD = escape("a\u2028b\u2029c\u0085d\u000be\u000cf 🦆 \ud800 <b>&amp;</b> g")
SLICES = [
    Slice("held_out/text", [TextDocument("long", SENTENCES[0] * 6), TextDocument("odd", ODD), TextDocument("short", "x")], "raw", "test"),
    Slice("probe/answers", [supervised("eggs", "3 * 4 = ", "12, 東京"), supervised("odd", ODD, " 🦆")], "supervised", "test", "low"),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[LanguageModel]:
    """Two models of different weights and vocabularies."""
    folders = [tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("other")]
    return [of_folder(release(folders[0])), of_folder(release(folders[1], seed=6, vocabulary=290))]


@pytest.fixture(scope="module")
def scores(models: list[LanguageModel], tmp_path_factory: pytest.TempPathFactory) -> list[list[ScoredDocument]]:
    out = Writer(str(tmp_path_factory.mktemp("out")), scratch_url=str(tmp_path_factory.mktemp("scratch")))
    return [list(score_slices(model, SLICES, 512, out)) for model in models]


def test_byte_losses_of_a_document_sum_to_its_token_losses(scores: list[list[ScoredDocument]]) -> None:
    for documents in scores:
        for one in documents:
            assert len(one.byte_nats) == len(one.text.encode())
            assert one.byte_nats.sum() == pytest.approx(one.token_nats.sum(), abs=1e-6)
            assert np.all(one.token_nats >= 0)


def test_the_models_spell_the_same_text_with_other_tokens(scores: list[list[ScoredDocument]]) -> None:
    ours, theirs = scores
    assert [one.text for one in ours] == [one.text for one in theirs]
    assert len(ours[0].token_nats) != len(theirs[0].token_nats)


def test_a_gap_to_itself_is_zero_and_turned_around_it_changes_its_sign_exactly(scores: list[list[ScoredDocument]]) -> None:
    ours, theirs = scores
    settings = {"resamples": 50, "level": 0.9, "seed": 1}
    itself = slice_gaps(document_gaps(ours, ours), **settings)
    assert [one.gap for one in itself] == [0.0, 0.0]
    there, back = (slice_gaps(document_gaps(*pair), **settings) for pair in ((ours, theirs), (theirs, ours)))
    assert [one.gap for one in there] == [-one.gap for one in back]
    assert all(one.gap != 0 for one in there)
    for one in there:
        assert one.gap == pytest.approx(one.ours - one.theirs, abs=1e-12)
    assert [(tag, count) for tag, count, _ in roll_up(there, "loss")] == [("raw", 1), ("supervised", 1)]


def test_of_a_supervised_document_its_target_alone_counts(scores: list[list[ScoredDocument]]) -> None:
    one = next(one for one in scores[0] if one.document == "eggs")
    assert one.bytes == len("12, 東京".encode())
    assert one.nats == pytest.approx(one.byte_nats[len("3 * 4 = ") :].sum())
    assert one.nats < one.token_nats.sum()


def test_scores_survive_their_file_with_every_odd_character(scores: list[list[ScoredDocument]], tmp_path: Path) -> None:
    artifact = artifact_of(tmp_path, {DOCUMENTS_FILE: to_table(scores[0])})
    read = list(read_documents(artifact))
    assert [(one.text, one.target, one.tags) for one in read] == [(one.text, one.target, one.tags) for one in scores[0]]
    assert [one.gap for one in slice_gaps(document_gaps(read, scores[0]), resamples=10, level=0.9, seed=0)] == [0.0, 0.0]


def test_different_text_is_not_compared(scores: list[list[ScoredDocument]]) -> None:
    with pytest.raises(MismatchedDocumentsError, match="document odd: only one model was scored on it"):
        document_gaps(scores[0], [one for one in scores[1] if one.document != "odd"])
    with pytest.raises(MismatchedDocumentsError, match="only one model was scored on it"):
        document_gaps(scores[0][:-1], scores[1])


def test_the_worst_documents_are_those_where_most_is_lost_and_won(scores: list[list[ScoredDocument]]) -> None:
    gaps = document_gaps(*scores)
    found = worst(gaps, 2)
    rates = sorted(one.bits_per_byte for one in gaps)
    assert {one.bits_per_byte for one in found} <= {rates[0], rates[-1], *(rate for rate in rates if rate > 0)}
    assert worst(document_gaps(scores[0], scores[0]), 4) == []


def test_heat_shows_every_character_once_and_a_part_of_a_long_document(scores: list[list[ScoredDocument]]) -> None:
    gaps = {(one.document.key, one.document.document): one for one in document_gaps(*scores)}
    runs, is_whole = heat_of(gaps["held_out/text", "long"], 10_000)
    assert is_whole
    assert "".join(run.text for run in runs) == (SENTENCES[0] * 6).replace("\n", "⏎\n")
    assert sum(run.bits for run in runs) == pytest.approx(gaps["held_out/text", "long"].total_bits)
    part, is_whole = heat_of(gaps["held_out/text", "odd"], 9)
    assert not is_whole
    assert 0 < len("".join(run.text for run in part).encode()) < len(ODD.encode())
    context = [run for run in heat_of(gaps["probe/answers", "eggs"], 100)[0] if run.shade is None]
    assert "".join(run.text for run in context) == "3 * 4 = "
    assert [shade_of(bits) for bits in (0.0, 0.1, -0.1, 0.3, -0.3, 9.0, -9.0)] == [0, 0, 0, 1, -1, LEVELS, -LEVELS]


def test_noise_is_the_spread_of_one_run_under_other_seeds() -> None:
    models = [{"a/b": 1.0}, {"a/b": 2.0}, {"a/b": 3.0}]
    assert signal_to_noise(models, [[{"a/b": 1.0}, {"a/b": 1.2}]])["a/b"] == pytest.approx(1.0 / math.sqrt(0.02))
    pooled = [[{"a/b": 1.0}, {"a/b": 1.2}], [{"a/b": 5.0}, {"a/b": 5.2}]]
    assert signal_to_noise(models, pooled)["a/b"] == pytest.approx(1.0 / math.sqrt(0.02))
    assert signal_to_noise(models, []) == {"a/b": None}
    assert signal_to_noise(models[:1], pooled) == {"a/b": None}


def test_the_report_holds_all_it_needs_and_no_text_becomes_markup(scores: list[list[ScoredDocument]], tmp_path: Path) -> None:
    named: dict[str, Artifact] = {
        name: artifact_of(tmp_path / name, {DOCUMENTS_FILE: to_table(scores[number])})
        for name, number in (("base", 1), ("ours", 0), ("twin", 0))
    }
    config = PerplexityGapConfig(baseline="base", repeats={"base": ("twin",)}, interval_resamples=20)
    found = run_program(compare_models, config, tmp_path / "gap", perplexity=named)
    with found.open("report.html") as stream:
        page = stream.read().decode()
    assert "http" not in page.replace("http-equiv", "")
    assert "<script" not in page
    read = html.unescape(re.sub("<[^>]*>", "", page))
    assert "🦆 \\ud800 <b>&amp;</b> g" in read  # as the text has it, once tags are taken out
    assert not {"\u2028", "\u2029", "\u0085", "\x0b", "\x0c"} & set(page)
    assert "not measured" not in page
    assert found.stats["macro_gap"]["ours"] == found.stats["macro_gap"]["twin"]
    again = run_program(compare_models, config, tmp_path / "again", perplexity=named)
    assert again.digest == found.digest
    with pytest.raises(ValueError, match="there is no model 'none'"):
        run_program(compare_models, PerplexityGapConfig(baseline="none"), tmp_path / "none", perplexity=named)


def test_repetitions_of_a_smaller_run_give_every_slice_its_signal_to_noise(scores: list[list[ScoredDocument]], tmp_path: Path) -> None:
    def shifted(by: float) -> Artifact:
        documents = [replace(one, token_nats=one.token_nats + by) for one in scores[0]]
        return artifact_of(tmp_path / f"shifted-{by}", {DOCUMENTS_FILE: to_table(documents)})

    models = {"base": shifted(0.0), "ours": shifted(0.2)}
    repeats = {f"w16.seed{number}": shifted(by) for number, by in enumerate((1.0, 1.1, 1.2))}
    config = PerplexityGapConfig(baseline="base", interval_resamples=20)
    found = run_program(compare_with_repeats, config, tmp_path / "gap", perplexity=models, repeats=repeats)
    with found.open("slices.parquet") as stream:
        rows = pq.read_table(stream).to_pylist()
    assert {row["model"] for row in rows} == {"ours"}, "a repetition is compared with nothing"
    # A shift by the token moves a slice's loss in proportion, so its shares cancel: deviation of (0, .2, 1) over that of (1, 1.1, 1.2).
    assert [row["signal_to_noise"] for row in rows] == pytest.approx([np.std([0.0, 0.2, 1.0], ddof=1) / 0.1] * len(rows), rel=1e-6)
    with found.open("report.html") as stream:
        assert "not measured" not in stream.read().decode()
    with pytest.raises(ValueError, match="'ours' is a model and a repetition"):
        run_program(compare_with_repeats, config, tmp_path / "twice", perplexity=models, repeats={"ours": models["ours"]})


def test_the_other_vocabulary_is_another(models: list[LanguageModel]) -> None:
    tokenizers: list[Tokenizer] = [model.tokenizer for model in models]
    assert len({tokenizer.get_vocab_size() for tokenizer in tokenizers}) == 2
