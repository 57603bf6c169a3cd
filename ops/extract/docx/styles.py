"""Paragraph styles: which are headings, and which bring a list's numbering."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ops.extract.docx.numbering import number

MAX_PARENTS = 16  # Word itself allows 11
BODY_LEVEL = 9  # the outline level of text that is no heading
HEADING_NAME = re.compile(r"heading ([1-9])", re.IGNORECASE)


@dataclass(slots=True)
class Style:
    """What a style says itself; None where its parent decides. `outline` counts from 0."""

    name: str = ""
    parent: str | None = None
    outline: int | None = None
    list_id: str | None = None
    list_level: int | None = None


class StylesReader:
    """Handler for `styles.xml`, and lookups in what it held."""

    reads = frozenset({"w:style", "w:name", "w:basedOn", "w:outlineLvl", "w:numId", "w:ilvl"})

    def __init__(self) -> None:
        self._styles: dict[str, Style] = {}
        self._default: str | None = None
        self._style = Style()

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name not in self.reads:
            return
        value = attributes.get("w:val")
        match name:
            case "w:style":
                self._begin(attributes)
            case "w:name":
                self._style.name = value or ""
            case "w:basedOn":
                self._style.parent = value
            case "w:outlineLvl":
                self._style.outline = number(value, BODY_LEVEL)
            case "w:numId":
                self._style.list_id = value
            case "w:ilvl":
                self._style.list_level = number(value, 0)

    def end(self, name: str) -> None:
        if name == "w:style":
            self._style = Style()  # latent styles and defaults lie outside any style

    def text(self, data: str) -> None:
        pass

    def _begin(self, attributes: Mapping[str, str]) -> None:
        self._style = Style()
        if attributes.get("w:type", "paragraph") != "paragraph":
            return
        identifier = attributes.get("w:styleId", "")
        self._styles[identifier] = self._style
        if attributes.get("w:default") in ("1", "true", "on"):
            self._default = identifier

    def heading(self, style: str | None) -> int | None:
        """The heading's level from 1 on; None for text."""
        for found in self._ancestors(style):
            if found.outline is not None:
                return found.outline + 1 if found.outline < BODY_LEVEL else None
            if match := HEADING_NAME.fullmatch(found.name):
                return int(match[1])
            if found.name.lower() == "title":
                return 1
        return None

    def numbering(self, style: str | None) -> tuple[str, int] | None:
        """The list (number id, level) that a style puts its paragraphs into."""
        level = None
        for found in self._ancestors(style):
            level = found.list_level if level is None else level
            if found.list_id is not None:
                return found.list_id, level or 0
        return None

    def _ancestors(self, style: str | None) -> list[Style]:
        chain: list[Style] = []
        name = self._default if style is None else style
        while name is not None and (found := self._styles.get(name)) is not None and len(chain) < MAX_PARENTS:
            chain.append(found)
            name = found.parent
        return chain
