"""Words, passages, hits and coverage against plain Python."""

import random
import re
import unicodedata
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from ops.decontaminate.lookup import prefix_starts
from ops.hashing import definition, passage_hits, passage_words, passages
from ops.hashing.columns import TextColumn
from ops.hashing.passage_words import word_codes

POOL = [
    *(
        "alpha",
        "Beta",
        "g.",
        "12",
        "--",
        "…",
        "漢字",
        "नि",
        "x\u00a0y",
        "don't",
        "co\u00adop",
        "Straße",
        "ΟΔΟΣ οδος",
        "Iİıi",
        "🙂\ufe0f",
        "ไทย",
        "snake_case",
    ),
    *(
        "\n",
        "\n\n",
        "\n \t\n",
        "\r\n",
        "\r\n\r\n",
        "\u2028",
        "\t",
        "<b>",
        "</p>",
        "<a href='x y'>",
        "< b",
        "<<i>",
        "<b",
        "&amp;",
        "&#39;",
        "& so;",
    ),
    *("[a](http://x.y/z)", "](b c)", "](b", "\\textbf{w}", "\\alpha", "\\{", "\\frac{1}{2}", "a<b>c", "<", ">", "&", "]", "\\"),
]
MARKUP = r"<(?=[A-Za-z/!])[^<>]{0,255}>|&[A-Za-z0-9#]{0,9};|(?<=\])\([^\x00-\x20)]{0,510}\)|\\[A-Za-z]{0,31}(?=\{)"
UNSPACED = re.compile(r"[\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U00033fff]")


def plain_words(text: str) -> list[tuple[str, bool, bool]]:
    """(word, whether a boundary stands before it, whether a blank line does)."""
    found: list[tuple[str, bool, bool]] = []
    word, boundary, newlines, blank = "", True, 0, True

    def close() -> None:
        nonlocal word, boundary, newlines, blank
        if word:
            found.append((word, boundary, blank))
            word, boundary, newlines, blank = "", False, 0, False

    for match in re.finditer(f"{MARKUP}|.", text, re.DOTALL):
        piece = match.group()
        if len(piece) == 1 and (unicodedata.category(piece) == "Cf" or "\ufe00" <= piece <= "\ufe0f"):
            continue
        if len(piece) == 1 and (piece.isalpha() or piece.isdigit() or unicodedata.category(piece)[0] == "M"):
            if word and (UNSPACED.match(piece) or UNSPACED.match(word[-1])):
                close()
            folded = piece.lower() if len(piece.lower()) == 1 else piece
            word += {"ς": "σ", "İ": "i", "ı": "i"}.get(folded, folded)
            continue
        close()
        if piece in "\n\x0c\x85\u2028\u2029":
            newlines += 1
            boundary, blank = True, blank or newlines == 2
        elif not (piece.isspace() or piece in ",'’‘-‐_"):
            newlines, boundary = 0, True
    close()
    return found


def random_texts(count: int, seed: int = 4) -> list[str]:
    rng = random.Random(seed)
    return [
        "",
        "\n\n",
        "a b c",
        *("".join(w + rng.choice(["", " "]) for w in rng.choices(POOL, k=rng.randint(0, 60))) for _ in range(count)),
    ]


def scan(text: str) -> tuple[list[int], list[int], list[bytes]]:
    data = np.frombuffer(text.encode(), np.uint8)
    room = len(data) // 2 + 2
    words, starts, ends, kinds = np.empty(room, np.uint64), np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.uint8)
    count = passage_words.scan_words(data, 0, len(data), word_codes(), words, starts, ends, kinds)
    return words[:count].tolist(), kinds[:count].tolist(), [bytes(data[a:b]) for a, b in zip(starts[:count], ends[:count], strict=True)]


def test_words_and_what_stands_before_them_agree_with_a_regular_expression() -> None:
    for text in random_texts(300):
        words, kinds, pieces = scan(text)
        expected = plain_words(text)
        assert words == [definition.word_hash(word) for word, _, _ in expected], repr(text)
        assert [bool(kind & passage_words.BOUNDARY) for kind in kinds] == [boundary for _, boundary, _ in expected], repr(text)
        assert [bool(kind & passage_words.PARAGRAPH) for kind in kinds] == [blank for _, _, blank in expected], repr(text)
        assert [bool(kind & passage_words.HAS_LETTER) for kind in kinds] == [any(c.isalpha() for c in word) for word, _, _ in expected]
        assert all(len(piece.decode()) >= len(word) for piece, (word, _, _) in zip(pieces, expected, strict=True))


@pytest.mark.parametrize(
    "other",
    [
        "THE QUICK brown fox, isn't it?",
        "the\nquick\r\nbrown\tfox \u2014 isn\u2019t it",
        "> the **quick** _brown_ fox\n> isn't it",
        "<p>The <b>quick</b> brown <a href='http://a.b/c d'>fox</a>&nbsp;isn&#39;t it</p>",
        "The [quick](http://x.y/z) \\textbf{brown} fox isn't it",
        "the qu\u00adick brown\u200b fox isn't it",
    ],
)
def test_a_re_wrapped_sentence_has_the_same_words(other: str) -> None:
    assert scan(other)[0] == scan("The quick brown fox isn't it")[0]


def column_passages(texts: list[str], width: int, least: int) -> list[tuple[int, int, list[int]]]:
    column = TextColumn.of(pa.array(texts, pa.string()))
    rows, sizes, heads, features, starts = passages.column_passages(column.data, column.offsets, word_codes(), width, least)
    assert [(head != 0) for head in heads] == [size < width for size in sizes]
    return [(rows[p], sizes[p], features[starts[p] : starts[p + 1]].tolist()) for p in range(len(rows))]


@pytest.mark.parametrize(("width", "least"), [(4, 2), (4, 4), (9, 3), (13, 3)])
def test_passages_are_long_paragraphs_or_else_the_whole_text(width: int, least: int) -> None:
    texts = random_texts(200, seed=5)
    expected = []
    for row, text in enumerate(texts):
        units = plain_words(text)
        paragraphs: list[list[str]] = []
        for word, _, blank in units:
            if blank:
                paragraphs.append([])
            paragraphs[-1].append(word)
        whole = [word for word, _, _ in units]
        long = [p for p in paragraphs if len(p) >= width and windows_of(p, width)]
        if not long and len(whole) >= least:
            long = [whole]
        for words in long:
            features = windows_of(words, min(width, len(words)))
            if features:
                expected.append((row, len(words), features))
    assert column_passages(texts, width, least) == expected


def windows_of(words: list[str], width: int) -> list[int]:
    spans = [words[i : i + width] for i in range(len(words) - width + 1)]
    return [definition.window_hash([definition.word_hash(w) for w in span]) for span in spans if any(c.isalpha() for w in span for c in w)]


def lookup_of(known: dict[int, int]) -> passages.Lookup:
    features = np.array(sorted(known), np.uint64)
    block_shift, shift = np.uint64(64 - 4), np.uint64(64 - 5)
    blocks = np.zeros(1 << 4, np.uint64)
    passages.fill_filter(features, blocks, block_shift)
    return passages.Lookup(
        features, prefix_starts(features, shift), shift, blocks, block_shift, np.array([known[f] for f in features.tolist()], np.uint16)
    )


def test_hits_agree_with_a_search_of_every_span() -> None:
    rng = random.Random(8)
    words = ["a", "b", "c"]
    texts = [". ".join(" ".join(rng.choices(words, k=rng.randint(1, 30))) for _ in range(rng.randint(0, 4))) for _ in range(60)]
    sentences = [sentence.split() for text in texts for sentence in text.split(". ") if len(sentence.split()) >= 3]
    short = [" ".join(sentence[: rng.randint(3, 12)]) for sentence in sentences] + [" ".join(s) for s in sentences if len(s) < 13]
    long = [" ".join(rng.choices(words, k=13)) for _ in range(40)] + [" ".join(texts[n].split()[:13]).replace(".", "") for n in range(30)]
    known: dict[int, int] = defaultdict(int)
    for passage in (*short, *(text for text in long if len(text.split()) == 13)):
        hashes = definition.word_units(passage)
        known[definition.window_hash(hashes)] |= 0
        if len(hashes) < 13:
            known[definition.window_hash(hashes[: 8 if len(hashes) >= 8 else 3])] |= 1 << len(hashes)
    whole = {definition.window_hash(definition.word_units(passage)) for passage in (*short, *long)}
    lookup = lookup_of(known)
    column = TextColumn.of(pa.array(texts))
    rows, places, numbers, starts, ends = passage_hits.column_hits(column.data, column.offsets, word_codes(), 13, lookup)
    found = sorted(zip(rows.tolist(), numbers.tolist(), lookup.features[places].tolist(), starts.tolist(), ends.tolist(), strict=True))
    expected = []
    for row, text in enumerate(texts):
        spans = [(m.start(), m.end()) for m in re.finditer(r"\w+", text)]
        units = plain_words(text)
        for i in range(len(units)):
            for length in range(3, 14):
                if i + length > len(units):
                    continue
                feature = definition.window_hash([definition.word_hash(word) for word, _, _ in units[i : i + length]])
                bounded = units[i][1] and (i + length == len(units) or units[i + length][1])
                if feature in whole and feature in known and (length >= 8 or bounded):
                    expected.append((row, i, feature, spans[i][0], spans[i + length - 1][1]))
    assert found == sorted(expected)
    assert {len(texts[row][start:end].split()) for row, _, _, start, end in found} == set(range(3, 14))


def test_every_entry_is_found_and_nothing_else() -> None:
    rng = np.random.default_rng(1)
    index = np.union1d(rng.integers(0, 2**64, 500, np.uint64), np.array([0, 2**64 - 1], np.uint64))
    lookup = lookup_of(dict.fromkeys(index.tolist(), 0))
    assert [passages.place_of(lookup, feature) for feature in index] == list(range(len(index)))
    out = np.empty(len(index), np.int64)
    assert passages.candidates(lookup, index, len(index), out) == len(index)
    absent = [np.uint64(int(feature) ^ 1) for feature in index if np.uint64(int(feature) ^ 1) not in index]
    assert {passages.place_of(lookup, feature) for feature in absent} == {-1}


def test_documents_are_counted_once_however_often_they_repeat_a_feature() -> None:
    rows, places = np.array([0, 0, 0, 1, 3]), np.array([2, 2, 1, 2, 2])
    counts, seen = np.zeros(4, np.int64), np.full(4, -1, np.int64)
    passage_hits.count_rows(rows, places, seen, 0, counts)
    passage_hits.count_rows(np.array([0]), np.array([2]), seen, 4, counts)
    assert counts.tolist() == [0, 1, 4, 0]
