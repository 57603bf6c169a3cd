"""Published quality rules: the statistics each looks at, and which of them a text fails.

Gopher's quality and repetition rules (Rae et al. 2021), C4's (Raffel et al. 2020), FineWeb's (Penedo et al. 2024). A text fails a
rule where its statistic lies strictly beyond the threshold; a statistic without a denominator fails nothing, and a text
without words fails the families that count them. `ops.hashing.rule_words` says what a word is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ops.hashing import rule_counts as counted
from ops.hashing import rule_lines
from ops.hashing.code_points import case_folding
from ops.hashing.columns import TextColumn
from ops.hashing.rule_phrases import count_phrases
from ops.hashing.rule_tables import character_bits, clipped_word_hashes, stop_word_hashes
from ops.rules.config import C4Config, FineWebConfig, GopherQualityConfig, GopherRepetitionConfig, RulesConfig
from ops.rules.word_list import load_phrases

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rule:
    """A text fails where `statistic` is below (above) `threshold`."""

    name: str  # family/statistic_side
    statistic: str
    side: Literal["below", "above"]
    threshold: float

    def fails(self, statistics: Mapping[str, Floats]) -> NDArray[np.bool_]:
        values = statistics[self.statistic]
        with np.errstate(invalid="ignore"):
            return values < self.threshold if self.side == "below" else values > self.threshold


@dataclass(frozen=True)
class Verdicts:
    """failed: [rules, rows], in the order of `rules`. statistics: name -> [rows], NaN where there is no denominator."""

    rules: tuple[Rule, ...]
    failed: NDArray[np.bool_]
    statistics: Mapping[str, Floats]

    @property
    def is_kept(self) -> NDArray[np.bool_]:
        return ~self.failed.any(axis=0)

    def failures_of(self, row: int) -> list[str]:
        """Names of the rules that a row fails."""
        return [self.rules[place].name for place in np.flatnonzero(self.failed[:, row])]


def judge(texts: TextColumn, config: RulesConfig) -> Verdicts:
    """Count and judge every text by itself.

    Raises:
        WordListError: see `load_phrases`.
    """
    c4, fineweb = config.c4 or C4Config(), config.fineweb or FineWebConfig()
    counts = counted.rule_counts(
        texts.data,
        texts.offsets,
        character_bits(),
        clipped_word_hashes(),
        stop_word_hashes(),
        config.max_chars,
        fineweb.short_line_chars,
        c4.max_word_chars,
        c4.min_line_words,
        c4.line_needs_end,
    )
    statistics, rules = statistics_of(counts.astype(np.float64)), rules_of(config)
    if c4.bad_words:
        found = count_phrases(texts.data, texts.offsets, character_bits(), case_folding(), config.max_chars, load_phrases(c4.bad_words))
        statistics["c4_bad_words"] = found.astype(np.float64)
    failed = np.stack([rule.fails(statistics) for rule in rules]) if rules else np.zeros((0, texts.rows), np.bool_)
    return Verdicts(rules, failed, statistics)


def statistics_of(counts: Floats) -> dict[str, Floats]:
    """[rows, rule_counts.COUNTS] to named statistics."""

    def of(column: int) -> Floats:
        return counts[:, column]

    def share(part: int, whole: int | Floats) -> Floats:
        denominator = of(whole) if isinstance(whole, int) else whole
        found: Floats = np.divide(of(part), denominator, out=np.full(len(counts), np.nan), where=denominator > 0)
        return found

    found = {
        "chars": of(counted.CHARS),
        "words": of(counted.NAMED_WORDS),
        "mean_word_chars": share(counted.NAMED_WORD_CHARS, counted.NAMED_WORDS),
        "hashes_per_word": share(counted.HASHES, counted.WORDS),
        "ellipses_per_word": share(counted.ELLIPSES, counted.WORDS),
        "bullet_line_share": share(counted.BULLET_LINES, counted.LINES),
        "ellipsis_line_share": share(counted.ELLIPSIS_LINES, counted.LINES),
        "alpha_word_share": share(counted.ALPHA_WORDS, counted.WORDS),
        "stop_words": of(counted.STOP_WORDS),
        "repeated_paragraph_share": share(counted.REPEATED_PARAGRAPHS, counted.PARAGRAPHS),
        "repeated_paragraph_char_share": share(counted.REPEATED_PARAGRAPH_CHARS, counted.CHARS),
        "repeated_line_share": share(counted.REPEATED_PARTS, counted.PARTS),
        "repeated_line_char_share": share(counted.REPEATED_PART_CHARS, counted.CHARS),
    }
    for place, width in enumerate(counted.TOP_WIDTHS):
        found[f"top_{width}_gram_char_share"] = share(counted.TOP_NGRAM_CHARS + place, counted.CHARS)
    for place, width in enumerate(counted.REPEATED_WIDTHS):
        found[f"repeated_{width}_gram_char_share"] = share(counted.REPEATED_NGRAM_CHARS + place, counted.CHARS)
    found |= {
        "c4_sentences": of(counted.C4 + rule_lines.C4_SENTENCES),
        "c4_kept_lines": of(counted.C4 + rule_lines.C4_KEPT_LINES),
        "c4_lorem_ipsum_lines": of(counted.C4 + rule_lines.C4_LOREM_LINES),
        "c4_curly_bracket_lines": of(counted.C4 + rule_lines.C4_BRACE_LINES),
        "c4_bad_words": np.full(len(counts), np.nan),  # of a list, which may not be named
        "full_lines": of(counted.FULL_LINES),
        "ended_line_share": share(counted.ENDED_LINES, counted.FULL_LINES),
        "short_line_share": share(counted.SHORT_LINES, counted.FULL_LINES),
        "repeated_full_line_char_share": share(counted.REPEATED_LINE_CHARS, of(counted.CHARS) - of(counted.NEWLINES)),
        "newlines_per_word": share(counted.NEWLINES, counted.WORDS),
    }
    return found


def rules_of(config: RulesConfig) -> tuple[Rule, ...]:
    """The rules that a config switches on."""
    found: list[Rule] = []
    if config.gopher_quality:
        found += _gopher_quality(config.gopher_quality)
    if config.gopher_repetition:
        found += _gopher_repetition(config.gopher_repetition)
    if config.c4:
        found += _c4(config.c4)
    if config.fineweb:
        found += _fineweb(config.fineweb)
    return tuple(found)


def _rule(family: str, statistic: str, side: Literal["below", "above"], threshold: float | None) -> Iterator[Rule]:
    if threshold is not None:
        yield Rule(f"{family}/{statistic}_{side}", statistic, side, threshold)


def _gopher_quality(config: GopherQualityConfig) -> Iterator[Rule]:
    family = "gopher_quality"
    yield from _rule(family, "words", "below", config.min_words)
    yield from _rule(family, "words", "above", config.max_words)
    yield from _rule(family, "mean_word_chars", "below", config.min_mean_word_chars)
    yield from _rule(family, "mean_word_chars", "above", config.max_mean_word_chars)
    yield from _rule(family, "hashes_per_word", "above", config.max_hashes_per_word)
    yield from _rule(family, "ellipses_per_word", "above", config.max_ellipses_per_word)
    yield from _rule(family, "bullet_line_share", "above", config.max_bullet_line_share)
    yield from _rule(family, "ellipsis_line_share", "above", config.max_ellipsis_line_share)
    yield from _rule(family, "alpha_word_share", "below", config.min_alpha_word_share)
    yield from _rule(family, "stop_words", "below", config.min_stop_words)


def _gopher_repetition(config: GopherRepetitionConfig) -> Iterator[Rule]:
    family = "gopher_repetition"
    yield from _rule(family, "chars", "below", 1)
    yield from _rule(family, "repeated_paragraph_share", "above", config.max_repeated_paragraph_share)
    yield from _rule(family, "repeated_paragraph_char_share", "above", config.max_repeated_paragraph_char_share)
    yield from _rule(family, "repeated_line_share", "above", config.max_repeated_line_share)
    yield from _rule(family, "repeated_line_char_share", "above", config.max_repeated_line_char_share)
    for width, threshold in zip(counted.TOP_WIDTHS, config.max_top_ngram_shares, strict=True):
        yield from _rule(family, f"top_{width}_gram_char_share", "above", threshold)
    for width, threshold in zip(counted.REPEATED_WIDTHS, config.max_repeated_ngram_shares, strict=True):
        yield from _rule(family, f"repeated_{width}_gram_char_share", "above", threshold)


def _c4(config: C4Config) -> Iterator[Rule]:
    yield from _rule("c4", "c4_sentences", "below", config.min_sentences)
    yield from _rule("c4", "c4_lorem_ipsum_lines", "above", 0)
    yield from _rule("c4", "c4_curly_bracket_lines", "above", 0)
    yield from _rule("c4", "c4_bad_words", "above", 0 if config.bad_words else None)


def _fineweb(config: FineWebConfig) -> Iterator[Rule]:
    family = "fineweb"
    yield from _rule(family, "full_lines", "below", 1)
    yield from _rule(family, "ended_line_share", "below", config.min_ended_line_share)
    yield from _rule(family, "short_line_share", "above", config.max_short_line_share)
    yield from _rule(family, "repeated_full_line_char_share", "above", config.max_repeated_line_char_share)
    yield from _rule(family, "newlines_per_word", "above", config.max_newlines_per_word)
