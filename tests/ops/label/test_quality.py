"""The quality score: its counts against a plain Python twin, its order of good and bad texts, its buckets."""

import base64
import inspect
import json
import random
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from ops.hashing import code_points, shape
from ops.hashing.columns import TextColumn
from ops.label.config import QualityConfig
from ops.label.quality import bucket_of, score_quality
from ops.label.rules import RULES, score_texts, stop_word_hashes
from ops.label.stop_words import STOP_WORDS
from ops.shards import read_table, shard_names
from tests.builders import run_program
from tests.ops.normalized import id_of, normalized

PROSE = """It was on a dreary night of November that I beheld the accomplishment of my toils. With an anxiety that
almost amounted to agony, I collected the instruments of life around me, that I might infuse a spark of being into
the lifeless thing that lay at my feet. It was already one in the morning; the rain pattered dismally against the
panes, and my candle was nearly burnt out, when, by the glimmer of the half-extinguished light, I saw the dull yellow
eye of the creature open; it breathed hard, and a convulsive motion agitated its limbs. How can I describe my emotions
at this catastrophe, or how delineate the wretch whom with such infinite pains and care I had endeavoured to form? His
limbs were in proportion, and I had selected his features as beautiful. Beautiful! Great God!"""
CHINESE = "短檠三尺照座隅，眵昏兩目頭不梳。丈夫功業務廣大，豈但文字書蟲魚。鄒君讀書有奇志，不肯俛首為章句。" + (
    "古人學問無遺力，少壯工夫老始成。紙上得來終覺淺，絕知此事要躬行。莫笑農家臘酒渾，豐年留客足雞豚。山重水複疑無路，柳暗花明又一村。"
)
JUNK = {
    "one line again and again": "Buy cheap watches online now\n" * 80,
    "a menu three times": "\n".join(["Home", "About", "Login", "Cart", "News", "Help", "Blog", "Shop", "Sale"] * 3),
    "symbols": "".join(random.Random(3).choices("#$%|=~^*+<>", k=900)),
}


def score(text: str, *, code: bool = False) -> float:
    return float(score_texts(TextColumn.of(pa.array([text])), np.array([code]), 200_000).score[0])


def python_shape(text: str) -> list[int]:
    """The counts, with strings, dicts and the Unicode database."""
    lines = [line for line in text.split("\n") if line.strip()]
    words = text.split()
    chars = [c for c in text if not c.isspace()]

    def letters(word: str) -> str:
        return "".join(lower(c) for c in word if c.isalpha() or unicodedata.category(c)[0] == "M")

    def lower(character: str) -> str:
        return character.lower() if len(character.lower()) == 1 else character

    def repeats(items: list[str]) -> list[str]:
        seen: Counter[str] = Counter()
        return [item for item in items if (seen.update([item]), seen[item] > 1)[1]]

    def width(line: str) -> int:
        head = line[: len(line) - len(line.lstrip())]
        return sum(4 if c == "\t" else 1 for c in head)

    squeezed = ["".join(lower(c) for c in line if not c.isspace()) for line in lines]
    folded = [lower(c) for c in chars]
    by_char = len(chars) > shape.LONG_WORD_CHARS * len(words)
    units, n = (folded, shape.NGRAM_CHARS) if by_char else (["".join(map(lower, w)) for w in words], shape.NGRAM_WORDS)
    ngrams = ["\x00".join(units[i : i + n]) for i in range(max(1, len(units) - n + 1))] if units else []
    return [
        len(chars),
        len(letters("".join(chars)) if chars else ""),
        sum(c.isdigit() and not c.isalpha() for c in chars),
        sum(not (c.isalpha() or c.isdigit() or unicodedata.category(c)[0] in "MP") or c in code_points.ORNAMENTS for c in chars),
        sum(any(a <= ord(c) <= b for a, b in code_points.UNSPACED_SCRIPTS) for c in chars),
        len(words),
        sum(letters(word) in STOP_WORDS for word in words),
        len(lines),
        sum(width(line) >= 4 or line.rstrip()[-1] in "{}();[]=\\" for line in lines),
        sum(map(len, repeats(squeezed))),
        len(ngrams),
        len(repeats(ngrams)),
    ]


def random_text(rng: random.Random) -> str:
    pool = ["the", "and", "Der", "слово", "漢字", "कि", "x=1;", "{", "}", "--", "12", "ทดสอบ", "naïve,", "\t", "\n", "\n\n", "    a", "#"]
    return " ".join(rng.choices(pool, k=rng.randint(0, 90)))


def test_counts_agree_with_the_python_twin() -> None:
    rng = random.Random(11)
    texts = ["", "\n", "a" * 50, PROSE, CHINESE, inspect.getsource(json), *JUNK.values(), *(random_text(rng) for _ in range(150))]
    column = TextColumn.of(pa.array(texts))
    tables = (code_points.character_classes(), code_points.case_folding(), stop_word_hashes())
    found = shape.text_shapes(column.data, column.offsets, 1_000_000, *tables)
    for text, row in zip(texts, found.tolist(), strict=True):
        assert row == python_shape(text), text


def test_only_the_beginning_is_read() -> None:
    column = TextColumn.of(pa.array([PROSE + "\n#####" * 100, PROSE]))
    tables = (code_points.character_classes(), code_points.case_folding(), stop_word_hashes())
    cut = shape.text_shapes(column.data, column.offsets, 300, *tables)
    assert cut[0].tolist() == cut[1].tolist() == python_shape(PROSE[:300])


@pytest.mark.parametrize("text", [PROSE, CHINESE], ids=["english", "classical chinese"])
def test_prose_reaches_the_highest_bucket(text: str) -> None:
    assert score(text) >= 0.8


def test_source_code_is_scored_as_code_and_not_as_bad_prose() -> None:
    source = inspect.getsource(json)
    assert score(source, code=True) >= 0.8


@pytest.mark.parametrize("text", JUNK.values(), ids=JUNK)
def test_junk_falls_into_the_lowest_bucket(text: str) -> None:
    assert score(text) < 0.2


def test_encoded_data_and_numbers_stay_below_the_middle() -> None:
    rng = random.Random(5)
    assert score(base64.b64encode(rng.randbytes(3000)).decode()) < 0.6
    assert score(" ".join(str(rng.randint(0, 99_999)) for _ in range(600))) < 0.4


def test_more_repetition_never_raises_the_score() -> None:
    scores = [score(PROSE + "\nsubscribe to our newsletter today" * n) for n in range(0, 60, 6)]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] - scores[-1] > 0.3


def test_every_rule_is_used_and_every_feature_stays_between_0_and_1() -> None:
    rng = random.Random(2)
    column = TextColumn.of(pa.array([PROSE, CHINESE, "", *(random_text(rng) for _ in range(50))]))
    scores = score_texts(column, np.zeros(column.rows, bool), 10_000)
    assert set(scores.features) == set(RULES)
    for values in scores.features.values():
        assert np.all(np.isnan(values) | ((values >= 0) & (values <= 1)))
    assert np.all((scores.score >= 0) & (scores.score <= 1))


def test_buckets_begin_at_their_cut() -> None:
    cuts = (0.2, 0.4, 0.6, 0.8)
    scores = np.array([0.0, 0.19999, 0.2, 0.5, 0.79999, 0.8, 1.0], np.float32)
    assert bucket_of(scores, cuts).tolist() == [0, 0, 1, 2, 3, 4, 4]


def test_cuts_out_of_order_are_refused() -> None:
    with pytest.raises(ValidationError, match="must ascend strictly"):
        QualityConfig(cuts=(0.4, 0.2, 0.6, 0.8))


def test_the_program_scores_each_row_in_place_whatever_the_batch(tmp_path: Path) -> None:
    texts = [PROSE, CHINESE, *JUNK.values(), *(f"{PROSE[n:]} {n}" for n in range(0, 300, 20))]
    source = normalized(tmp_path / "in", texts, shards=2)
    runs = [run_program(score_quality, QualityConfig(batch_rows=n), tmp_path / str(n), normalized=source) for n in (1, 5, 4096)]
    assert len({run.digest for run in runs}) == 1
    assert runs[0].stats == runs[1].stats == runs[2].stats
    assert shard_names(runs[0]) == shard_names(source)
    rows = {row["id"]: row for name in shard_names(runs[0]) for row in read_table(runs[0], name).to_pylist()}
    assert rows[id_of(PROSE)]["score"] == pytest.approx(score(PROSE), abs=0)
    assert rows[id_of(PROSE)]["quality_bucket"] == 4
    assert runs[0].stats["documents"] == sum(runs[0].stats["buckets"].values()) == len(texts)


def test_the_media_type_says_what_is_code(tmp_path: Path) -> None:
    source = normalized(tmp_path / "in", [inspect.getsource(json)], media_type="text/x-python")
    stats = run_program(score_quality, QualityConfig(), tmp_path / "out", normalized=source).stats
    assert (stats["code_documents"], stats["buckets"]["4"]) == (1, 1)
