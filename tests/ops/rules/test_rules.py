"""Published rules: every statistic against the plain-Python oracle, every threshold at its edge, and the label stage."""

import hashlib
import inspect
import json
import math
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from infra.artifacts.config import identity_of
from ops.hashing.columns import TextColumn
from ops.hashing.rule_tables import character_bits, clipped_word_hashes
from ops.hashing.rule_words import PADDING, fill_bits, words_of
from ops.rules.config import C4Config, GopherQualityConfig, RulesConfig, WordList
from ops.rules.labels import STATISTICS, label_rules
from ops.rules.verdicts import Verdicts, judge, rules_of
from ops.rules.word_list import WordListError
from ops.shards import read_table, shard_names
from tests.builders import run_program
from tests.ops.normalized import id_of, normalized
from tests.ops.rules import oracle

PROSE = """It was on a dreary night of November that I beheld the accomplishment of my toils. With an anxiety that almost
amounted to agony, I collected the instruments of life around me, that I might infuse a spark of being into the
lifeless thing that lay at my feet. It was already one in the morning; the rain pattered dismally against the panes.
My candle was nearly burnt out, when, by the glimmer of the half-extinguished light, I saw the dull yellow eye open.
How can I describe my emotions at this catastrophe, or how delineate the wretch whom I had endeavoured to form?
His limbs were in proportion, and I had selected his features as beautiful. Beautiful! Great God!
"""
POOL = (
    "the of and to be with that have Slowly river stone naïve O'Brien don't it's we'll can't Mr. U.S. J. 3.14 1,000 x=1; foo_bar "
    'well-known end. end? end! "so" (so) ... …  — -- # ## * • […] [12] [edit] f(x) a[i]=b{c} \\in \\ a\\b '
    "[citation needed] { } JavaScript lorem ipsum use cookies privacy policy слово слова. 漢字。 कि ’s ,, //// a.com end.The e.g. etc."
)
WORDS = POOL.split(" ")
BREAKS = [" ", " ", " ", " ", " ", "\n", "\n\n", "\r\n", "\u2028", "\t", "  ", "\n- ", "\n\n\n"]


def verdicts_on(texts: list[str], config: RulesConfig | None = None) -> Verdicts:
    return judge(TextColumn.of(pa.array(texts, pa.string())), config or RulesConfig())


def random_text(rng: random.Random) -> str:
    pool = rng.sample(WORDS, rng.randint(3, len(WORDS)))
    return "".join(rng.choice(pool) + rng.choice(BREAKS) for _ in range(rng.randint(0, 150)))


def texts() -> list[str]:
    rng = random.Random(7)
    fixed = [
        "",
        " ",
        "\n",
        "\n\n\n",
        "a",
        "a\n",
        "\na",
        "...",
        "a\n\na\n\na",
        PROSE,
        PROSE * 3,
        inspect.getsource(json)[:3000],
        "x" * 1200 + " y z.",
    ]
    return fixed + [random_text(rng) for _ in range(400)]


def test_every_statistic_agrees_with_the_oracle() -> None:
    given = texts()
    found = verdicts_on(given).statistics
    assert set(found) == set(oracle.statistics_of("a"))
    for row, text in enumerate(given):
        for name, expected in oracle.statistics_of(text).items():
            value = found[name][row]
            assert math.isnan(value) if expected is None else value == pytest.approx(expected, rel=1e-12), (name, text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I don't know; it's O'Brien's.", ["I", "do", "n't", "know", ";", "it", "'s", "O'Brien", "'s", "."]),
        ("Mr. J. Doe paid 1,000.50 in the U.S. etc.", ["Mr.", "J.", "Doe", "paid", "1,000.50", "in", "the", "U.S.", "etc."]),
        ("well-known... [12] —end.The", ["well", "-", "known", "...", "[", "12", "]", "—", "end", ".", "The"]),
        ("print(x) of word(s) a==b **", ["print(x", ")", "of", "word(s", ")", "a", "=", "=", "b", "*", "*"]),
        ("see example.com, ok?!", ["see", "example.com", ",", "ok", "?", "!"]),
    ],
)
def test_words_are_cut_where_the_definition_says(text: str, words: list[str]) -> None:
    codes = np.array([ord(character) for character in text] + [0] * PADDING, np.uint32)
    hashes, kinds, bits = np.empty(len(codes), np.uint64), np.empty(len(codes), np.uint16), np.empty(len(codes), np.uint16)
    starts, ends = np.empty(len(codes), np.int32), np.empty(len(codes), np.int32)
    fill_bits(codes, len(text), character_bits(), bits)
    count = words_of(codes, bits, 0, len(text), clipped_word_hashes(), hashes, starts, ends, kinds)
    assert oracle.words_of(text) == words
    assert [text[start:][:length] for start, length in zip(starts, np.diff(ends[: count + 1]), strict=False)] == words


def test_prose_passes_every_rule_and_each_kind_of_junk_fails_the_rule_made_for_it() -> None:
    varied = " ".join(f"The {n}th stone of the river was carried to the sea and it did not come back with the tide." for n in range(40))
    junk = {
        "gopher_quality/words_below": "Too short.",
        "gopher_quality/mean_word_chars_above": "incomprehensibilities " * 60,
        "gopher_quality/hashes_per_word_above": "# the tag # and # to be # of words " * 20,
        "gopher_quality/bullet_line_share_above": "\n".join(f"- the item number {n} of that list" for n in range(30)),
        "gopher_quality/ellipsis_line_share_above": "\n".join(f"and then the {n}th thing..." for n in range(30)),
        "gopher_quality/alpha_word_share_below": " ".join(str(n) for n in range(90)),
        "gopher_quality/stop_words_below": "Slowly river stone moves under gray skies. " * 20,
        "gopher_repetition/repeated_line_share_above": "The same line.\n" * 20,
        "gopher_repetition/repeated_paragraph_share_above": "The same paragraph.\n\n" * 20,
        "gopher_repetition/top_2_gram_char_share_above": "of the " * 60,
        "gopher_repetition/repeated_10_gram_char_share_above": f"{varied} {varied}",
        "c4/c4_sentences_below": "no end of a line\n" * 20,
        "c4/c4_lorem_ipsum_lines_above": PROSE + "Lorem ipsum dolor sit amet.",
        "c4/c4_curly_bracket_lines_above": PROSE + "if (x) { return the value of it; }.",
        "fineweb/ended_line_share_below": "\n".join(f"line number {n} has no mark at its end" for n in range(30)),
        "fineweb/short_line_share_above": "\n".join(f"Short line {n}." for n in range(30)),
        "fineweb/repeated_full_line_char_share_above": PROSE + "The same line stands here.\n" * 2,
        "fineweb/newlines_per_word_above": "\n".join(f"w{n}" for n in range(30)),
    }
    assert verdicts_on([PROSE]).failures_of(0) == []
    found = verdicts_on(list(junk.values()))
    for row, name in enumerate(junk):
        assert name in found.failures_of(row), (name, found.failures_of(row))
        assert not found.is_kept[row]


def test_a_statistic_on_the_threshold_passes() -> None:
    text = " ".join(["that"] * 25 + ["with"] * 25)
    only = {"gopher_repetition": None, "c4": None, "fineweb": None}
    assert verdicts_on([text], RulesConfig(**only)).is_kept[0]
    tighter = RulesConfig(**only, gopher_quality=GopherQualityConfig(min_words=51))
    assert verdicts_on([text], tighter).failures_of(0) == ["gopher_quality/words_below"]


def test_a_family_or_rule_set_to_none_is_not_applied() -> None:
    off = RulesConfig(gopher_quality=None, gopher_repetition=None, c4=None, fineweb=None)
    assert rules_of(off) == ()
    assert verdicts_on(["", "junk"], off).is_kept.tolist() == [True, True]
    assert len(rules_of(RulesConfig())) - len(rules_of(RulesConfig(gopher_quality=GopherQualityConfig(min_words=None)))) == 1


def word_list(path: Path, listed: list[str]) -> WordList:
    path.write_text("".join(f"{phrase}\n" for phrase in listed))
    return WordList(path=str(path), sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def test_bad_words_are_counted_as_c4_looks_for_them(tmp_path: Path) -> None:
    listed = ["Stone", "and of", "x=1", "слово", "…", "d", "river stone naïve", "end.The"]
    config = RulesConfig(c4=C4Config(bad_words=word_list(tmp_path / "bad.txt", [*listed, ""])))
    given = [*texts(), "STONE", "stones and gravestone", "(stone)", "Слово.", "stone stone"]
    found = verdicts_on(given, config).statistics["c4_bad_words"]
    assert found.tolist() == [oracle.bad_words(text, listed) for text in given]
    assert found[-5:].tolist() == [1, 0, 1, 1, 2]


def test_a_bad_word_drops_a_document_where_a_list_is_named(tmp_path: Path) -> None:
    only = {"gopher_repetition": None, "gopher_quality": None, "fineweb": None}
    named = RulesConfig(**only, c4=C4Config(bad_words=word_list(tmp_path / "bad.txt", ["dreary night"])))
    assert verdicts_on([PROSE]).failures_of(0) == []
    assert verdicts_on([PROSE], named).failures_of(0) == ["c4/c4_bad_words_above"]
    assert verdicts_on([PROSE.replace("dreary", "bright")], named).is_kept[0]


def test_a_word_list_that_is_missing_or_another_fails_before_any_shard(tmp_path: Path) -> None:
    source, words = normalized(tmp_path / "in", [PROSE]), word_list(tmp_path / "bad.txt", ["one"])
    (tmp_path / "bad.txt").write_text("two\n")
    for path, reason in (("bad.txt", "set sha256 to judge by this one"), ("gone.txt", "put it there, or set bad_words to null")):
        config = RulesConfig(c4=C4Config(bad_words=words.model_copy(update={"path": str(tmp_path / path)})))
        with pytest.raises(WordListError, match=reason):
            run_program(label_rules, config, tmp_path / path.removesuffix(".txt"), normalized=source)


def test_a_word_list_is_identity_by_its_hash_and_not_by_its_place(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one, moved, other = (
        identity_of(RulesConfig(c4=C4Config(bad_words=word_list(tmp_path / path, [word]))))
        for path, word in (("a.txt", "one"), ("other/b.txt", "one"), ("c.txt", "two"))
    )
    assert one == moved != other


def test_lines_without_an_end_count_where_the_config_says_so() -> None:
    text = "One line. Two lines. Three lines. Four lines. Five lines and no end"
    assert verdicts_on([text]).statistics["c4_sentences"][0] == 0
    assert verdicts_on([text], RulesConfig(c4=C4Config(line_needs_end=False))).statistics["c4_sentences"][0] == 5


def test_only_the_beginning_of_a_text_is_judged() -> None:
    cut = verdicts_on([PROSE + "{ lorem ipsum } " * 50], RulesConfig(max_chars=len(PROSE)))
    whole = verdicts_on([PROSE])
    np.testing.assert_equal(cut.statistics, whole.statistics)


def test_labels_lie_beside_the_documents_with_their_reasons_and_are_the_same_in_any_batch(tmp_path: Path) -> None:
    given = [text for text in dict.fromkeys(texts()) if text.strip()]
    source = normalized(tmp_path / "in", given, shards=2)
    results = {rows: run_program(label_rules, RulesConfig(batch_rows=rows), tmp_path / str(rows), normalized=source) for rows in (7, 4096)}
    assert results[7].digest == results[4096].digest
    rows = {row["id"]: row for name in shard_names(source) for row in read_table(results[7], name).to_pylist()}
    assert len(rows) == len(given) == results[7].stats["documents"]
    assert rows[id_of(PROSE)]["is_kept"]
    assert rows[id_of(PROSE)]["failed_rules"] == []
    for row in rows.values():
        assert row["is_kept"] == (not row["failed_rules"])
        assert set(STATISTICS) <= set(row)
    assert results[7].stats["kept"] == sum(row["is_kept"] for row in rows.values())
    assert results[7].stats["failed"]["c4/c4_sentences_below"] == sum(
        "c4/c4_sentences_below" in row["failed_rules"] for row in rows.values()
    )
