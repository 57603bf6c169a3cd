"""WordprocessingML to blocks: what a reader of the final document sees, once and in order.

Left out: deleted and moved-away text, field codes, hidden runs, comments, pictures, and the second form of what a file
holds twice for older readers. Kept: insertions, field results, the text of links and text boxes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ops.extract.docx.blocks import Block, Kind, paragraph_text, table_blocks
from ops.extract.docx.equations import WITH_PROPERTIES
from ops.extract.docx.numbering import BULLET, Counters
from ops.extract.docx.paragraphs import CHARACTERS, Attributes, Paragraph, Paragraphs
from ops.extract.docx.styles import BODY_LEVEL, StylesReader

SKIPPED = frozenset(
    {"w:del", "w:moveFrom", "w:delText", "w:instrText", "w:delInstrText", "w:sectPr", "w:sdtPr", "w:rt", "w:object"}
    | {f"w:{changed}Change" for changed in ("rPr", "pPr", "tblPr", "tblPrEx", "trPr", "tcPr", "tblGrid", "numbering")}
)
CONDITIONAL = frozenset({"mc:Choice", "mc:Fallback"})  # left out if another form of the same was taken
READ = (
    *("pStyle", "outlineLvl", "numId", "ilvl", "vanish", "fldChar", "sym", "vMerge", "hMerge"),
    *("footnote", "endnote", "footnoteReference", "endnoteReference"),
)
MAX_INDENT = 8


@dataclass(slots=True)
class _Container:
    """Where blocks go: the body, a cell, a text box, a note. `carried`: text whose paragraph mark was deleted."""

    blocks: list[Block] = field(default_factory=list)
    carried: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Table:
    rows: list[list[list[Block]]] = field(default_factory=list)
    is_row_deleted: bool = False
    is_cell_merged: bool = False  # into the one above or to the left, which holds the text
    is_cell_deleted: bool = False


class BodyReader:
    """Handler for the document part and for its notes.

    After parsing, `blocks` is the part's own content, `notes` what each note of it holds, and `references` numbers the
    notes referred to, (kind, id), in order of appearance.
    """

    reads = WITH_PROPERTIES | {f"w:{name}" for name in READ}  # not of `w:p` and `w:r`, which carry revision marks that say nothing

    def __init__(self, styles: StylesReader, counters: Counters, references: dict[tuple[str, str], int]) -> None:
        self._styles, self._counters = styles, counters
        self._containers = [_Container()]
        self._paragraphs = Paragraphs()
        self._tables: list[_Table] = []
        self._skipped_depth = 0
        self._alternatives: list[int | None] = []  # open mc:AlternateContent: None once a choice gave text
        self._note = ""
        self.root = ""
        self.notes: dict[str, list[Block]] = {}
        self.references = references
        self._starts: dict[str, Callable[[Attributes], None]] = {
            **self._paragraphs.starts,
            "w:p": lambda _: self._start_paragraph(),
            "w:tbl": lambda _: self._tables.append(_Table()),
            "w:tr": lambda _: self._start_row(),
            "w:tc": lambda _: self._start_cell(),
            "w:vMerge": self._merge,
            "w:hMerge": self._merge,
            "w:cellDel": lambda _: self._delete_cell(),
            "w:txbxContent": lambda _: self._containers.append(_Container()),
            "mc:AlternateContent": lambda _: self._alternatives.append(self._paragraphs.amount),
            "w:footnote": self._start_note,
            "w:endnote": self._start_note,
            "w:footnoteReference": lambda attributes: self._refer("footnote", attributes),
            "w:endnoteReference": lambda attributes: self._refer("endnote", attributes),
        }
        self._ends: dict[str, Callable[[], None]] = {
            **self._paragraphs.ends,
            "w:p": self._end_paragraph,
            "w:tbl": self._end_table,
            "w:tr": self._end_row,
            "w:tc": self._end_cell,
            "w:txbxContent": self._end_text_box,
            "mc:Choice": self._end_choice,
            "mc:AlternateContent": self._end_alternatives,
            "w:footnote": self._end_note,
            "w:endnote": self._end_note,
        }

    @property
    def blocks(self) -> list[Block]:
        return _closed(self._containers[0])

    def start(self, name: str, attributes: Attributes) -> None:
        if self._skipped_depth:
            self._skipped_depth += 1
            return
        self.root = self.root or name
        if (name in SKIPPED or name in CONDITIONAL) and self._is_left_out(name):
            self._skipped_depth = 1
            return
        if name in CHARACTERS or name.startswith("m:"):
            self._paragraphs.element(name, attributes)
        if (begin := self._starts.get(name)) is not None:
            begin(attributes)

    def end(self, name: str) -> None:
        if self._skipped_depth:
            self._skipped_depth -= 1
            return
        if name.startswith("m:"):
            self._paragraphs.element_end(name)
        if (finish := self._ends.get(name)) is not None:
            finish()

    def text(self, data: str) -> None:
        if not self._skipped_depth:
            self._paragraphs.character_data(data)

    def _is_left_out(self, name: str) -> bool:
        if name in ("w:del", "w:moveFrom"):
            self._delete_mark_or_row()
        if name in CONDITIONAL:
            return bool(self._alternatives) and self._alternatives[-1] is None
        return True

    def _delete_mark_or_row(self) -> None:
        """`w:del` around runs is left out as it is; among properties it deletes what has them."""
        if self._paragraphs.current is not None:
            self._paragraphs.delete_mark()
        elif self._tables:
            self._tables[-1].is_row_deleted = True

    # --- paragraphs

    def _start_paragraph(self) -> None:
        container = self._containers[-1]
        self._paragraphs.open(container.carried)
        container.carried = []

    def _end_paragraph(self) -> None:
        paragraph, container = self._paragraphs.close(), self._containers[-1]
        if paragraph.is_mark_deleted:
            container.carried = paragraph.pieces
        else:
            container.blocks += self._blocks_of(paragraph)
        container.blocks += paragraph.after

    def _blocks_of(self, paragraph: Paragraph) -> list[Block]:
        label, level = self._label_of(paragraph)  # empty items count, too
        text = paragraph_text(paragraph.pieces)
        if not text:
            return []
        heading = self._styles.heading(paragraph.style)
        if paragraph.outline is not None:
            heading = paragraph.outline + 1 if paragraph.outline < BODY_LEVEL else None
        if heading is not None:
            shown = f"{label} " if label not in (None, BULLET) else ""
            return [Block(Kind.PARAGRAPH, f"{'#' * heading} {shown}{' '.join(text.split())}")]
        if label is None:
            return [Block(Kind.PARAGRAPH, text)]
        indent = "  " * min(level, MAX_INDENT)
        return [Block(Kind.ITEM, f"{indent}{label} " + text.replace("\n", f"\n{indent}  "))]

    def _label_of(self, paragraph: Paragraph) -> tuple[str | None, int]:
        inherited = self._styles.numbering(paragraph.style)
        list_id = paragraph.list_id or (inherited[0] if inherited else None)
        level = paragraph.list_level if paragraph.list_level is not None else inherited[1] if inherited else 0
        if list_id is None or list_id == "0":  # 0 takes a paragraph out of its style's list
            return None, 0
        return self._counters.next_label(list_id, level), level

    # --- tables

    def _start_row(self) -> None:
        if self._tables:
            self._tables[-1].rows.append([])
            self._tables[-1].is_row_deleted = False

    def _end_row(self) -> None:
        if self._tables and self._tables[-1].is_row_deleted:
            self._tables[-1].rows.pop()

    def _start_cell(self) -> None:
        self._containers.append(_Container())
        if self._tables:
            self._tables[-1].is_cell_merged = self._tables[-1].is_cell_deleted = False

    def _end_cell(self) -> None:
        if len(self._containers) == 1:
            return
        blocks = _closed(self._containers.pop())
        if not self._tables or not self._tables[-1].rows:
            self._containers[-1].blocks += blocks  # a cell outside a table: keep the text
            return
        table = self._tables[-1]
        if not table.is_cell_deleted:
            table.rows[-1].append([] if table.is_cell_merged else blocks)

    def _merge(self, attributes: Attributes) -> None:
        if self._tables and attributes.get("w:val", "continue") == "continue":
            self._tables[-1].is_cell_merged = True

    def _delete_cell(self) -> None:
        if self._tables:
            self._tables[-1].is_cell_deleted = True

    def _end_table(self) -> None:
        self._containers[-1].blocks += table_blocks(self._tables.pop().rows)

    # --- text boxes, alternatives, notes

    def _end_text_box(self) -> None:
        blocks = _closed(self._containers.pop())
        anchor = self._paragraphs.current
        (self._containers[-1].blocks if anchor is None else anchor.after).extend(blocks)

    def _end_choice(self) -> None:
        before = self._alternatives[-1] if self._alternatives else None
        if before is not None and self._paragraphs.amount > before:
            self._alternatives[-1] = None

    def _end_alternatives(self) -> None:
        self._alternatives.pop()

    def _start_note(self, attributes: Attributes) -> None:
        if self.root in ("w:footnotes", "w:endnotes"):  # `w:footnote` also stands in settings
            self._note = attributes.get("w:id", "")
            self._containers.append(_Container())

    def _end_note(self) -> None:
        if self.root in ("w:footnotes", "w:endnotes"):
            self.notes.setdefault(self._note, _closed(self._containers.pop()))

    def _refer(self, kind: str, attributes: Attributes) -> None:
        key = kind, attributes.get("w:id", "")
        mark = self.references.setdefault(key, len(self.references) + 1)
        self._paragraphs.add(f"[^{mark}]")


def _closed(container: _Container) -> list[Block]:
    """A container's blocks, with the paragraph that no other followed."""
    text = paragraph_text(container.carried)
    return [*container.blocks, Block(Kind.PARAGRAPH, text)] if text else container.blocks
