"""Blocks of a document in order - paragraphs, list items, tables - and the text they make."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

CELL_SEPARATOR: Final = " | "
# Runs of spaces are lay-out; tabs and line breaks inside a paragraph are the writer's.
SPACES = re.compile(r"[ \u00a0]{2,}")
AROUND_BREAKS = re.compile(r"(?<![ \t])[ \t]*+\n[ \t\n]*")  # begins at a run's first character alone: linear in a megabyte of tabs
BLANKS = re.compile(r"\s+")


class Kind(Enum):
    """What a block is, as far as its distance to its neighbours goes."""

    PARAGRAPH = auto()
    ITEM = auto()
    TABLE = auto()


@dataclass(frozen=True, slots=True)
class Block:
    """One block's text, never blank."""

    kind: Kind
    text: str


def paragraph_text(pieces: Iterable[str]) -> str:
    """A paragraph's pieces as text without the white space of lay-out."""
    return AROUND_BREAKS.sub("\n", SPACES.sub(" ", "".join(pieces))).strip()


def join_blocks(blocks: Iterable[Block]) -> str:
    """A blank line between blocks, none between the items of a list."""
    parts: list[str] = []
    before: Kind | None = None
    for block in blocks:
        if before is not None:
            parts.append("\n" if before is block.kind is Kind.ITEM else "\n\n")
        parts.append(block.text)
        before = block.kind
    return "".join(parts)


def on_one_line(blocks: Iterable[Block]) -> str:
    return BLANKS.sub(" ", " ".join(block.text for block in blocks)).strip()


def table_blocks(rows: list[list[list[Block]]]) -> list[Block]:
    """A table's blocks; `rows` holds rows of cells of blocks.

    Rows are lines, cells are joined without padding. A table of one column is lay-out: what it holds stands by itself.
    """
    if all(len(cells) <= 1 for cells in rows):
        return [block for cells in rows for cell in cells for block in cell]
    lines = [CELL_SEPARATOR.join(map(on_one_line, cells)) for cells in rows]
    text = "\n".join(line for line in (line.rstrip(" |").lstrip(" ") for line in lines) if line)  # empty last cells say nothing
    return [Block(Kind.TABLE, text)] if text else []
