"""How values are written for people."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from infra.dash.results import Key

EXCERPT_CHARS = 160
WHOLE_CHARS = 20_000  # of one text on a page; more on demand


def percent(value: float, digits: int = 1) -> str:
    """A rate: 61.2. The sign stands once, in the column's head."""
    return f"{100 * value:.{digits}f}"


def share(value: float) -> str:
    """A share that is only 100% when nothing is missing, and only 0% when everything is."""
    text = f"{100 * value:.1f}"
    if value < 1 and text == "100.0":
        text = "99.9"
    if value > 0 and text == "0.0":
        text = "0.1"
    return f"{text.removesuffix('.0')}%"


def moment(at: datetime) -> str:
    """To the minute, with its zone."""
    return f"{at:%Y-%m-%d %H:%M} {at.tzname() or ''}".rstrip()


def number(value: float) -> str:
    """Whole numbers with their thousands parted, large ones with a letter, others with four digits."""
    if not isinstance(value, int):
        return f"{value:.4g}"
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if value >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:,}"


def signed(value: float) -> str:
    """With its sign, a true minus."""
    return f"{value:+.4g}".replace("-", "\N{MINUS SIGN}")


def excerpt(text: str | None, limit: int = EXCERPT_CHARS) -> str:
    """The beginning of a text on one line."""
    line = " ".join((text or "")[: 4 * limit].split())
    return line if len(line) <= limit and len(text or "") <= 4 * limit else f"{line[:limit]}\N{HORIZONTAL ELLIPSIS}"


def told(text: str | None) -> str:
    """What a grader said, on a line: a JSON object as its names and values."""
    try:
        found = json.loads(text or "null")
    except (ValueError, RecursionError):
        return text or ""
    if not isinstance(found, dict):
        return text or ""
    return " · ".join(f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in found.items())


def key_json(key: Key) -> str:
    """A key as part of a query."""
    return quote(json.dumps(list(key)), safe="")


def pretty(text: str) -> str:
    """JSON text with its structure visible; anything else as it is. Characters stay escaped that JSON escapes: they can do no harm."""
    try:
        return json.dumps(json.loads(text), indent=2)
    except (ValueError, RecursionError):
        return text


def visible(text: str) -> str:
    """Characters that a browser drops or obeys - controls, line separators, marks of direction - by their numbers."""
    return text.translate(_NUMBERED)


_UNSEEN = (*range(32), 127, *range(0x80, 0xA0), 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
_NUMBERED: Mapping[int, str] = {code: f"[U+{code:04X}]" for code in _UNSEEN if chr(code) not in "\n\t"}

FILTERS: Mapping[str, Callable[..., Any]] = {
    "percent": percent,
    "share": share,
    "moment": moment,
    "number": number,
    "signed": signed,
    "told": told,
    "key_json": key_json,
    "pretty": pretty,
    "visible": visible,
}
