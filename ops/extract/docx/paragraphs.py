"""Paragraphs being read: their runs, fields and properties."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ops.extract.docx.blocks import Block
from ops.extract.docx.equations import Equation
from ops.extract.docx.numbering import number
from ops.extract.docx.styles import BODY_LEVEL
from ops.extract.docx.symbols import symbol

Attributes = Mapping[str, str]
OFF = ("0", "false", "off", "none")
CHARACTERS = {"w:tab": "\t", "w:ptab": "\t", "w:br": "\n", "w:cr": "\n", "w:noBreakHyphen": "-"}


@dataclass(slots=True)
class Paragraph:
    """One paragraph so far. `after` holds the blocks of its text boxes. A deleted mark joins it to the next."""

    pieces: list[str]
    style: str | None = None
    outline: int | None = None
    list_id: str | None = None
    list_level: int | None = None
    is_mark_deleted: bool = False
    is_in_run: bool = False
    is_run_hidden: bool = False
    after: list[Block] = field(default_factory=list)


class Paragraphs:
    """The open paragraphs, innermost last: a text box lies inside the paragraph that anchors it."""

    def __init__(self) -> None:
        self._open: list[Paragraph] = []
        self._fields: list[str] = []  # open fields: "code" or "result"
        self._equation: Equation | None = None
        self._is_text = False
        self.amount = 0  # pieces of text so far
        self.starts: dict[str, Callable[[Attributes], None]] = {
            "w:r": self._start_run,
            "w:t": self._start_text,
            "m:t": self._start_text,
            "m:oMath": self._start_equation,
            "w:pStyle": self._set_style,
            "w:outlineLvl": self._set_outline,
            "w:numId": self._set_list,
            "w:ilvl": self._set_list_level,
            "w:vanish": self._hide,
            "w:fldChar": self._step_field,
            "w:sym": lambda attributes: self.add(symbol(attributes.get("w:font", ""), attributes.get("w:char", ""))),
        }
        self.ends: dict[str, Callable[[], None]] = {
            "w:r": self._end_run,
            "w:t": self._end_text,
            "m:t": self._end_text,
            "m:oMath": self._end_equation,
        }

    @property
    def current(self) -> Paragraph | None:
        return self._open[-1] if self._open else None

    def open(self, carried: list[str]) -> None:
        self._open.append(Paragraph(carried))

    def close(self) -> Paragraph:
        self._fields = [state for state in self._fields if state != "code"]  # a code never runs on: its end is missing
        return self._open.pop()

    def add(self, text: str) -> None:
        paragraph = self.current
        if paragraph is not None and "code" not in self._fields and not paragraph.is_run_hidden:
            paragraph.pieces.append(text)
            self.amount += 1

    def character_data(self, data: str) -> None:
        if self._is_text:
            self.add(data)

    def element(self, name: str, attributes: Attributes) -> None:
        """An element that is a character, or part of an equation."""
        if name in CHARACTERS:
            paragraph = self.current
            if paragraph is not None and paragraph.is_in_run:  # `w:tab` is a tab stop, too
                self.add(CHARACTERS[name])
        elif self._equation is not None and name.startswith("m:"):
            self._equation.start(name, attributes)

    def element_end(self, name: str) -> None:
        if self._equation is not None and name.startswith("m:"):
            self._equation.end(name)

    def delete_mark(self) -> None:
        """`w:del` among a paragraph's properties."""
        paragraph = self.current
        if paragraph is not None and not paragraph.is_in_run:
            paragraph.is_mark_deleted = True

    def _start_run(self, attributes: Attributes) -> None:
        if (paragraph := self.current) is not None:
            paragraph.is_in_run, paragraph.is_run_hidden = True, False

    def _end_run(self) -> None:
        if (paragraph := self.current) is not None:
            paragraph.is_in_run = paragraph.is_run_hidden = False

    def _start_text(self, attributes: Attributes) -> None:
        self._is_text = True

    def _end_text(self) -> None:
        self._is_text = False

    def _start_equation(self, attributes: Attributes) -> None:
        if self._equation is None and (paragraph := self.current) is not None:
            self.add("$")
            self._equation = Equation(paragraph.pieces)

    def _end_equation(self) -> None:
        if self._equation is not None and self._equation.is_whole:
            self._equation = None
            self.add("$")

    def _hide(self, attributes: Attributes) -> None:
        paragraph = self.current
        if paragraph is not None and paragraph.is_in_run and attributes.get("w:val") not in OFF:
            paragraph.is_run_hidden = True

    def _step_field(self, attributes: Attributes) -> None:
        kind = attributes.get("w:fldCharType")
        if kind == "begin":
            self._fields.append("code")
        elif kind == "separate" and self._fields:
            self._fields[-1] = "result"
        elif kind == "end" and self._fields:
            self._fields.pop()

    def _set_style(self, attributes: Attributes) -> None:
        if (paragraph := self.current) is not None:
            paragraph.style = attributes.get("w:val")

    def _set_outline(self, attributes: Attributes) -> None:
        if (paragraph := self.current) is not None:
            paragraph.outline = number(attributes.get("w:val"), BODY_LEVEL)

    def _set_list(self, attributes: Attributes) -> None:
        if (paragraph := self.current) is not None:
            paragraph.list_id = attributes.get("w:val")

    def _set_list_level(self, attributes: Attributes) -> None:
        if (paragraph := self.current) is not None:
            paragraph.list_level = number(attributes.get("w:val"), 0)
