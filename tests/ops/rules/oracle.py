"""The published rules in plain Python: regular expressions, lists, sets. Slow, short, and written apart from the kernels."""

import re
import unicodedata
from collections import Counter

from ops.hashing.rule_tables import CLIPPED_WORDS, SENTENCE_TERMINALS, STOP_WORDS

LETTER = r"[^\W\d_]"
ENDING = r"['’](?:[smdt]|ll|re|ve)(?!\w)"
NOT = r"n['’]t(?!\w)"
JOINT = "|".join(
    [
        rf"(?<={LETTER})['’](?={LETTER})(?!(?:[smd]|ll|re|ve)(?!\w))",
        r"\.(?=\w)(?!(?<=[a-zäöüß]\.)[A-Z])",
        r"(?<=\d),(?=\d)",
        r"(?<=\w)[()\[\]{}|\\$!?;&#\"@%](?=\w)",
    ]
)
WORD = re.compile(rf"(?<={LETTER}){NOT}|\w(?:(?!(?<={LETTER}){NOT})\w|{JOINT})*(?:(?<=[A-Z])(?<!\w[A-Z])\.(?![\w.]))?")
SYMBOL = re.compile(rf"(?<={LETTER}){ENDING}|([.\-~+])\1*|\S")
TERMINALS = {chr(code) for first, last in SENTENCE_TERMINALS.split() for code in range(ord(first), ord(last) + 1)}
CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")
POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


def words_of(text: str) -> list[str]:
    shadow = "".join("_" if unicodedata.category(character)[0] == "M" else character for character in text)
    found, at = [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        is_escaped = shadow[at] == "\\" and WORD.match(shadow, at + 1) is not None
        match = WORD.match(shadow, at + is_escaped) or SYMBOL.match(shadow, at)
        assert match is not None
        end = match.end()
        if match[0] in CLIPPED_WORDS and re.match(r"\.(?![\w.])", shadow[end:]):
            end += 1
        found.append(text[at:end])
        at = end
    return found


def is_symbol(character: str) -> bool:
    return (
        unicodedata.category(character)[0] == "P"
        or unicodedata.category(character) == "Cc"
        or character in "$+<=>^`|~´～" + "".join(TERMINALS)
    )


def sentences_of(text: str) -> int:
    words = words_of(text)
    breaks, ended = 0, False
    for word in words:
        if word in TERMINALS:
            ended = True
        elif ended and not all(unicodedata.category(character)[0] == "P" for character in word):
            breaks, ended = breaks + 1, False
    return breaks + 1 if words else 0


def repeats(items: list[str]) -> list[str]:
    return [item for place, item in enumerate(items) if item in items[:place]]


def top_chars(words: list[str], width: int) -> int:
    ngrams = [" ".join(words[i : i + width]) for i in range(len(words) - width + 1)]
    if not ngrams:
        return 0
    ngram, count = Counter(ngrams).most_common(1)[0]
    return len(ngram) * count


def repeated_chars(words: list[str], width: int) -> int:
    seen, chars, at = set(), 0, 0
    while at + width <= len(words):
        ngram = tuple(words[at : at + width])
        chars += sum(map(len, ngram)) if ngram in seen else 0
        at += width if ngram in seen else 1
        seen.add(ngram)
    return chars


def share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def c4(text: str, *, line_needs_end: bool = True) -> tuple[int, int, int, int]:
    """Sentences, kept lines, lines with lorem ipsum, lines with a curly bracket."""
    sentences = kept = lorem = braces = 0
    for line in text.splitlines():
        words = line.split()
        line = CITATION.sub("", line.strip())
        if any(len(word) > 1000 for word in words) or len(words) < 3:
            continue
        if line_needs_end and (not line.endswith((".", "?", "!", '"', "'")) or line.endswith("...")):
            continue
        lowered = line.lower()
        if "lorem ipsum" in lowered:
            lorem += 1
        elif "javascript" in lowered:
            continue
        elif "{" in line:
            braces += 1
        elif not any(policy in lowered for policy in POLICIES):
            kept += 1
            sentences += sentences_of(line)
    return sentences, kept, lorem, braces


def bad_words(text: str, listed: list[str]) -> int:
    """Places where a listed phrase stands with no word character on either side, in any case."""
    shadow = "".join("_" if unicodedata.category(character)[0] == "M" else character for character in text.lower())
    return sum(len(re.findall(rf"(?<!\w)(?={re.escape(phrase.lower())}(?!\w))", shadow)) for phrase in set(listed))


def statistics_of(text: str) -> dict[str, float | None]:
    """The statistics by name; None where there is no denominator."""
    words, lines = words_of(text), text.splitlines()
    named = [word for word in words if not all(map(is_symbol, word))]
    paragraphs, parts = re.split(r"\n{2,}", text.strip()), re.split(r"\n+", text)
    full = [line for line in text.split("\n") if line.strip()]
    sentences, kept, lorem, braces = c4(text)
    return {
        "chars": len(text),
        "words": len(named),
        "mean_word_chars": share(sum(map(len, named)), len(named)),
        "hashes_per_word": share(text.count("#"), len(words)),
        "ellipses_per_word": share(text.count("...") + text.count("…"), len(words)),
        "bullet_line_share": share(sum(line.lstrip().startswith(("•", "-")) for line in lines), len(lines)),
        "ellipsis_line_share": share(sum(line.rstrip().endswith(("...", "…")) for line in lines), len(lines)),
        "alpha_word_share": share(sum(any(map(str.isalpha, word)) for word in words), len(words)),
        "stop_words": len(set(words) & set(STOP_WORDS)),
        "repeated_paragraph_share": share(len(repeats(paragraphs)), len(paragraphs)),
        "repeated_paragraph_char_share": share(sum(map(len, repeats(paragraphs))), len(text)),
        "repeated_line_share": share(len(repeats(parts)), len(parts)),
        "repeated_line_char_share": share(sum(map(len, repeats(parts))), len(text)),
        **{f"top_{width}_gram_char_share": share(top_chars(words, width), len(text)) for width in (2, 3, 4)},
        **{f"repeated_{width}_gram_char_share": share(repeated_chars(words, width), len(text)) for width in range(5, 11)},
        "c4_sentences": sentences,
        "c4_kept_lines": kept,
        "c4_lorem_ipsum_lines": lorem,
        "c4_curly_bracket_lines": braces,
        "c4_bad_words": None,
        "full_lines": len(full),
        "ended_line_share": share(sum(line[-1] in TERMINALS for line in full), len(full)),
        "short_line_share": share(sum(len(line) <= 30 for line in full), len(full)),
        "repeated_full_line_char_share": share(sum(map(len, repeats(full))), len(text.replace("\n", ""))),
        "newlines_per_word": share(text.count("\n"), len(words)),
    }
