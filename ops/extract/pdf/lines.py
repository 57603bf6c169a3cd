"""Lines of a PDF's pages to running text: white space, hyphens at line ends, repeated headers and footers."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

HYPHEN_AT_END = re.compile("[\ufffe\u0002]\n?")  # PDFium's mark for a hyphen that ends a line, in the place of both
HYPHEN = "\ufffe"  # of a line's end, not yet decided about
CONTROL = re.compile("[\0-\x08\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ud800-\udfff\ufeff]")
SPACES = re.compile("[ \u00a0\t\u2000-\u200a]+")
WORD = re.compile(r"\w+(?:-\w+)+|\w+")
BROKEN_WORD = re.compile(r"(?<!\w)(\w++)(?:\ufffe|-\n(?=[^\W\d_A-Z]))(\w+)")
DIGITS = re.compile(r"\d+|(?<!\w)[ivxlc]+(?!\w)", re.IGNORECASE)
LINE_ENDS = ".:;!?。！？0123456789"  # a number ends headers and rows of tables
WRAPPED_SHARE = 0.5  # a line shorter than this share of its page's longest was ended by its writer
SHORTEST_WRAPPED_LINE = 20  # characters; a narrower line may be a title, an entry or a cell
MARGIN_LINES = 2  # from either edge of a page, in which headers and footers are looked for
LEAST_REPEATS = 3  # pages
REPEATED_SHARE = 0.4  # of the pages with text: headers of left pages stand on half of them
LONGEST_MARGIN_LINE = 150  # characters


def page_lines(raw: str) -> list[str]:
    """A page's lines as the parser gave them, without control characters and without the white space of lay-out.

    A hyphen that may be the line end's alone is left as U+FFFE inside its line.
    """
    text = HYPHEN_AT_END.sub(HYPHEN, raw.replace("\r\n", "\n").replace("\r", "\n"))
    text = CONTROL.sub("", text)
    return [line for line in (SPACES.sub(" ", line).strip() for line in text.splitlines()) if line]


def without_margins(pages: Sequence[Sequence[str]]) -> list[list[str]]:
    """Take away lines that stand at the edge of many pages, up to the numbers in them.

    A page that would be left empty is kept whole: there the repeated line is the page.
    """
    with_text = sum(bool(lines) for lines in pages)
    least = max(LEAST_REPEATS, round(REPEATED_SHARE * with_text))
    tops, bottoms = Counter[str](), Counter[str]()
    for lines in pages:
        tops.update({_key(line) for line in lines[:MARGIN_LINES] if len(line) <= LONGEST_MARGIN_LINE})
        bottoms.update({_key(line) for line in lines[-MARGIN_LINES:] if len(line) <= LONGEST_MARGIN_LINE})
    return [_inner(lines, tops, bottoms, least) for lines in pages]


def _key(line: str) -> str:
    return DIGITS.sub("#", line).casefold()


def _inner(lines: Sequence[str], tops: Counter[str], bottoms: Counter[str], least: int) -> list[str]:
    last = len(lines) - MARGIN_LINES
    kept = [
        line
        for at, line in enumerate(lines)
        if not (
            len(line) <= LONGEST_MARGIN_LINE
            and ((at < MARGIN_LINES and tops[_key(line)] >= least) or (at >= last and bottoms[_key(line)] >= least))
        )
    ]
    return kept or list(lines)


def reflowed(lines: Sequence[str]) -> str:
    """A page's text: a line goes on in the next where it is full, ends no sentence, and the next begins in lower case."""
    longest = max((len(part) for line in lines for part in line.split(HYPHEN)), default=0)  # a mark stands for a line end
    parts: list[str] = []
    before = ""
    for line in lines:
        if before:
            is_full = len(before.rpartition(HYPHEN)[2]) >= max(SHORTEST_WRAPPED_LINE, WRAPPED_SHARE * longest)
            is_wrapped = is_full and before[-1] not in LINE_ENDS and line[0].islower()
            parts.append(" " if is_wrapped and before[-1] != "-" else "\n")
        parts.append(line)
        before = line
    return "".join(parts)


class Dehyphenator:
    """Decides about hyphens at line ends by how the document writes the word elsewhere."""

    def __init__(self, pages: Iterable[str]) -> None:
        self._words: set[str] = set()
        for text in pages:
            self._words.update(word.casefold() for word in WORD.findall(text))

    def __call__(self, text: str) -> str:
        """`house-|holds` becomes `households`; `well-|known` keeps its hyphen where the document has `well-known`."""
        return BROKEN_WORD.sub(self._join, text).replace(HYPHEN, "-")

    def _join(self, match: re.Match[str]) -> str:
        first, second = match[1], match[2]
        whole, compound = first + second, f"{first}-{second}"
        if whole.casefold() in self._words:
            return whole
        is_compound = compound.casefold() in self._words or not second[0].islower() or first[-1].isdigit()
        return compound if is_compound else whole


def joined(pages: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    """All pages' text, and for every page the character at which it starts; empty pages start where the next does."""
    starts: list[int] = []
    parts: list[str] = []
    at = 0
    for page in pages:
        if page and at:
            parts.append("\n\n")
            at += 2
        starts.append(at)
        parts.append(page)
        at += len(page)
    text = "".join(parts)
    return text, tuple(min(start, len(text)) for start in starts)


def document_text(raw_pages: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    """Pages as the parser gave them to one text and its page starts."""
    texts = [reflowed(lines) for lines in without_margins([page_lines(raw) for raw in raw_pages])]
    dehyphenate = Dehyphenator(texts)
    return joined([dehyphenate(text) for text in texts])
