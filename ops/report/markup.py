"""HTML that can't be made to say anything but what we say: every string is escaped where it becomes part of a page.

Crawled texts are hostile by default. Beside the five characters of HTML, what would act on the reader's screen is made
visible: control characters, and marks that turn the direction of writing.
"""

import html
import re

_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
_VOID = frozenset({"meta", "br"})


class Markup(str):
    """A piece of a page, escaped already."""

    __slots__ = ()


def text(value: str) -> Markup:
    """Anybody's text as a piece of a page."""
    return Markup(html.escape(_ACTING.sub(_shown, value), quote=True))


def element(tag: str, *children: Markup | str, **attributes: str) -> Markup:
    """An element. Plain strings among the children and all attributes are escaped; `class_` stands for `class`.

    Raises:
        ValueError: a tag or attribute is no name: names are ours, never data.
    """
    names = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    for name in (tag, *names):
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            raise ValueError(f"{name!r} is no name of HTML")
    opened = "".join(f' {name}="{text(value)}"' for name, value in names.items())
    if tag in _VOID:
        return Markup(f"<{tag}{opened}>")
    inner = "".join(child if isinstance(child, Markup) else text(child) for child in children)
    return Markup(f"<{tag}{opened}>{inner}</{tag}>")


def joined(*parts: Markup) -> Markup:
    """Pieces one after another."""
    return Markup("".join(parts))


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)  # the control pictures: ␀ to ␟
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"
