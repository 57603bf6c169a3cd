"""List labels as the reader of a document sees them: `1.2`, `(a)`, or a dash for any bullet."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

LEVELS = 9
MAX_LABEL_CHARS = 32
BULLET = "-"


@dataclass(slots=True)
class Level:
    """How one level of a list is labelled. `text` holds `%1` to `%9` for the counters."""

    style: str = "decimal"
    text: str = ""
    start: int = 1


@dataclass(slots=True)
class ListStyle:
    """One abstract list: its levels by index."""

    levels: dict[int, Level] = field(default_factory=dict)

    def level(self, index: int) -> Level:
        return self.levels.get(index) or Level(text=f"%{index + 1}.")


def number(value: str | None, default: int) -> int:
    """A non-negative number of at most nine digits; anything else is the default."""
    return int(value) if value is not None and re.fullmatch(r"[0-9]{1,9}", value) else default


class NumberingReader:
    """Handler for `numbering.xml`."""

    reads = frozenset(
        f"w:{name}" for name in ("abstractNum", "num", "abstractNumId", "lvl", "lvlOverride", "startOverride", "start", "numFmt", "lvlText")
    )

    def __init__(self) -> None:
        self.abstract: dict[str, ListStyle] = {}
        self.instances: dict[str, str] = {}  # number id -> abstract id
        self.restarts: dict[str, dict[int, int]] = {}  # number id -> level -> first number
        self._style = ListStyle()
        self._level = Level()
        self._index = 0
        self._instance = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name not in self.reads:
            return
        value = attributes.get("w:val")
        match name:
            case "w:abstractNum":
                self._style = self.abstract.setdefault(attributes.get("w:abstractNumId", ""), ListStyle())
            case "w:num":
                self._instance = attributes.get("w:numId", "")
                self._style = ListStyle()  # levels that an override redefines are left as the abstract list has them
            case "w:abstractNumId":
                self.instances[self._instance] = value or ""
            case "w:lvl" | "w:lvlOverride":
                self._index = min(number(attributes.get("w:ilvl"), 0), LEVELS - 1)
                if name == "w:lvl":
                    self._level = self._style.levels.setdefault(self._index, Level())
            case "w:startOverride":
                self.restarts.setdefault(self._instance, {})[self._index] = number(value, 1)
            case "w:start":
                self._level.start = number(value, 1)
            case "w:numFmt":
                self._level.style = value or "decimal"
            case "w:lvlText":
                self._level.text = (value or "")[:MAX_LABEL_CHARS]

    def end(self, name: str) -> None:
        pass

    def text(self, data: str) -> None:
        pass


class Counters:
    """Counts through a document's lists in its order."""

    def __init__(self, numbering: NumberingReader) -> None:
        self._numbering = numbering
        self._counts: dict[str, list[int | None]] = {}  # by abstract list: instances share their counters
        self._seen: set[str] = set()

    def next_label(self, instance: str, index: int) -> str | None:
        """The label of the next item, None where the document shows none. Unknown lists are bulleted."""
        index = min(max(index, 0), LEVELS - 1)
        abstract = self._numbering.instances.get(instance)
        if abstract is None:
            return BULLET
        style = self._numbering.abstract.get(abstract, ListStyle())
        counts = self._counts.setdefault(abstract, [None] * LEVELS)
        if instance not in self._seen:
            self._seen.add(instance)
            for level, first in self._numbering.restarts.get(instance, {}).items():
                counts[level] = first - 1
        count = counts[index]
        counts[index] = style.level(index).start if count is None else count + 1
        counts[index + 1 :] = [None] * (LEVELS - index - 1)
        return _label(style, index, counts)


def _label(style: ListStyle, index: int, counts: list[int | None]) -> str | None:
    level = style.level(index)
    if level.style in ("bullet", "none") or "%" not in level.text:
        return BULLET if level.style == "bullet" else level.text.strip() or None

    def counter(match: re.Match[str]) -> str:
        at = int(match[1]) - 1
        count = counts[at]
        return _counted(style.level(at).style, style.level(at).start if count is None else count)

    return re.sub(r"%([1-9])", counter, level.text).strip() or None


def _counted(style: str, count: int) -> str:
    if style in ("lowerLetter", "upperLetter") and 0 < count <= 260:
        letters = chr(ord("a") + (count - 1) % 26) * ((count - 1) // 26 + 1)  # z, aa, bb: Word's way
        return letters.upper() if style == "upperLetter" else letters
    if style in ("lowerRoman", "upperRoman") and 0 < count < 4_000:
        return _roman(count) if style == "upperRoman" else _roman(count).lower()
    if style == "decimalZero":
        return f"{count:02d}"
    return str(count)


def _roman(count: int) -> str:
    digits = []
    values = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
    signs = ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I")
    for value, sign in zip(values, signs, strict=True):
        times, count = divmod(count, value)
        digits.append(sign * times)
    return "".join(digits)
