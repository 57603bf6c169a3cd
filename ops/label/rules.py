"""A rule-based quality score: named features of a text's shape, each mapped to [0, 1], weighted, multiplied.

It measures whether a text *looks* like running prose or like source code written by people: no more. It does
not know truth, style or usefulness. The score is the weighted geometric mean of the features that apply, so one
bad feature can't be bought off by many good ones. Ramps and weights were set on the corpora named in the tests
so that the cuts 0.2, 0.4, 0.6, 0.8 part repeated and symbol junk (lowest) from books and documentation (highest).
Language-neutral by construction: stop words of 27 languages; a language outside them loses little, and scripts
without spaces are spared the word features.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ops.hashing import shape
from ops.hashing.code_points import case_folding, character_classes
from ops.hashing.columns import TextColumn
from ops.hashing.definition import word_hash
from ops.label.stop_words import STOP_WORDS

Floats = NDArray[np.float64]

FLOOR = 0.01  # of a feature: two features of weight 0.25 on the floor bring the best text to 0.24, any third one to the lowest bucket
UNSPACED_SHARE = 0.1  # of characters: from here on the features of words do not apply
UNSPACED_CHARS_WORTH = 2.5  # a Chinese translation has 0.4 times the characters of the English text
CODE_LINE_SHARE = 0.5  # of lines that end like statements or are indented: from here on a text is scored as code


@dataclass(frozen=True)
class Ramp:
    """0 at `low`, 1 at `high`, straight between; falling where `low` > `high`. `least` lifts the bottom."""

    low: float
    high: float
    least: float = 0.0

    def __call__(self, values: Floats) -> Floats:
        risen = np.clip((values - self.low) / (self.high - self.low), 0.0, 1.0)
        return self.least + (1.0 - self.least) * risen


@dataclass(frozen=True)
class Rule:
    """Weight of a feature, and its ramps for prose and code; None where the feature says nothing about the kind."""

    weight: float
    prose: Ramp | None
    code: Ramp | None


RULES: Mapping[str, Rule] = {
    "length": Rule(0.25, Ramp(np.log(60), np.log(800)), Ramp(np.log(40), np.log(400))),  # log of characters
    "alphabetic_share": Rule(0.25, Ramp(0.40, 0.70), Ramp(0.25, 0.50)),  # letters of characters
    "symbol_share": Rule(0.15, Ramp(0.35, 0.10), Ramp(0.60, 0.35)),  # neither letter, digit nor sentence punctuation
    "stop_word_share": Rule(0.20, Ramp(0.0, 0.15, least=0.2), None),  # of words
    "word_length": Rule(0.15, Ramp(14.0, 10.0), None),  # mean characters of a word: encoded data, joined words
    "line_length": Rule(0.10, Ramp(6.0, 24.0), Ramp(1_000.0, 150.0)),  # mean characters of a line: menus, minified code
    "repeated_lines": Rule(0.25, Ramp(0.50, 0.10), Ramp(0.80, 0.40)),  # characters in lines that came before
    "repeated_ngrams": Rule(0.25, Ramp(0.70, 0.20), Ramp(0.90, 0.45)),  # 5 words, or 12 characters where words are long
}


@dataclass(frozen=True)
class Scores:
    """score: [rows] float32 in [0, 1]. features: name -> [rows] in [0, 1], NaN where a feature does not apply."""

    score: NDArray[np.float32]
    features: Mapping[str, Floats]
    is_code: NDArray[np.bool_]


def score_texts(texts: TextColumn, declared_code: NDArray[np.bool_], max_chars: int) -> Scores:
    """Score every text by itself.

    Args:
        declared_code: [rows], true where the media type says source code.
        max_chars: read from the beginning of each text.
    """
    counts = shape.text_shapes(texts.data, texts.offsets, max_chars, character_classes(), case_folding(), stop_word_hashes())
    return score_shapes(counts.astype(np.float64), declared_code)


def score_shapes(counts: Floats, declared_code: NDArray[np.bool_]) -> Scores:
    """Score shapes ([rows, shape.MEASURES]); see `score_texts`."""
    is_code = declared_code | (_share(counts, shape.CODE_LINES, shape.LINES) >= CODE_LINE_SHARE)
    unspaced = is_unspaced(counts)
    features = {}
    for name, values in raw_features(counts).items():
        rule = RULES[name]
        prose = rule.prose(values) if rule.prose else np.full(len(values), np.nan)
        code = rule.code(values) if rule.code else np.full(len(values), np.nan)
        mapped = np.where(is_code, code, prose)
        if name in ("stop_word_share", "word_length"):
            mapped = np.where(unspaced, np.nan, mapped)
        features[name] = mapped
    return Scores(_weighted_geometric_mean(features), features, is_code)


def raw_features(counts: Floats) -> dict[str, Floats]:
    """The features before their ramps, in the units that `RULES` names."""
    worth = np.where(is_unspaced(counts), UNSPACED_CHARS_WORTH, 1.0)
    return {
        "length": np.log(np.maximum(1.0, counts[:, shape.CHARS] * worth)),
        "alphabetic_share": _share(counts, shape.LETTERS, shape.CHARS),
        "symbol_share": _share(counts, shape.SYMBOLS, shape.CHARS),
        "stop_word_share": _share(counts, shape.STOP_WORDS, shape.WORDS),
        "word_length": _share(counts, shape.CHARS, shape.WORDS),
        "line_length": _share(counts, shape.CHARS, shape.LINES) * worth,
        "repeated_lines": _share(counts, shape.REPEATED_LINE_CHARS, shape.CHARS),
        "repeated_ngrams": _share(counts, shape.REPEATED_NGRAMS, shape.NGRAMS),
    }


def is_unspaced(counts: Floats) -> NDArray[np.bool_]:
    """[rows]: whether the text is in a script that writes no spaces."""
    return _share(counts, shape.UNSPACED_CHARS, shape.CHARS) >= UNSPACED_SHARE


@cache
def stop_word_hashes() -> NDArray[np.uint64]:
    """Sorted hashes of the stop words of all languages."""
    return np.array(sorted({word_hash(word) for word in STOP_WORDS}), np.uint64)


def _share(counts: Floats, part: int, whole: int) -> Floats:
    return counts[:, part] / np.maximum(1.0, counts[:, whole])


def _weighted_geometric_mean(features: Mapping[str, Floats]) -> NDArray[np.float32]:
    values = np.stack([features[name] for name in RULES])
    weights = np.array([rule.weight for rule in RULES.values()])[:, None] * ~np.isnan(values)
    logs = np.log(np.maximum(FLOOR, np.nan_to_num(values, nan=1.0)))
    means: Floats = (weights * logs).sum(axis=0) / weights.sum(axis=0)
    return np.exp(means).astype(np.float32)
