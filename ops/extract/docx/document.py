"""A DOCX file (.docx, .docm, .dotx, .dotm) to text, in Markdown's manner."""

import posixpath
from collections.abc import Mapping

from ops.extract.config import DocxConfig
from ops.extract.docx.blocks import join_blocks, on_one_line
from ops.extract.docx.body import BodyReader
from ops.extract.docx.errors import DocxError
from ops.extract.docx.numbering import Counters, NumberingReader
from ops.extract.docx.package import Package
from ops.extract.docx.styles import StylesReader

NAME = "docx/1"  # the extractor column: another rule is another number
MAIN_PART = "word/document.xml"
OTHER_FORMATS = {"xl/": "a spreadsheet", "ppt/": "a presentation", "visio/": "a drawing"}


def docx_text(data: bytes, limits: DocxConfig) -> str:
    """The text of a document: headings with `#`, list items with the labels that a reader sees, rows of tables as lines
    with cells joined by ` | `, notes at the end as `[^1]: ...`.

    Headers, footers, comments and pictures are left out.

    Raises:
        DocxError: encrypted, broken, no Word document, beyond the limits, or without any text.

    Memory: the file, one part inflated by and by, and the text.
    """
    package = Package(data, limits)
    main = _main_part(package)
    targets = package.targets(main)
    styles, numbering = StylesReader(), NumberingReader()
    _read_if_there(package, targets.get("styles"), styles)
    _read_if_there(package, targets.get("numbering"), numbering)
    references: dict[tuple[str, str], int] = {}
    body = BodyReader(styles, Counters(numbering), references)
    package.parse(main, body)
    if body.root != "w:document":
        raise DocxError("unsupported-media-type", f"the main part is {body.root or 'empty'}, no Word document")
    text = join_blocks(body.blocks)
    notes = _notes(package, targets, styles, numbering, references)
    text = "\n\n".join(part for part in (text, notes) if part)
    if not text:
        raise DocxError("empty-text", "the document has no text")
    return text


def _main_part(package: Package) -> str:
    main = package.targets("").get("officeDocument", "").lstrip("/")
    if main and main in package and "[Content_Types].xml" in package:
        if posixpath.dirname(main).lower() != "word":
            _refuse_other_formats(package)
        return main
    _refuse_other_formats(package)
    if MAIN_PART not in package:
        raise DocxError("unsupported-media-type", "a zip file without a Word document in it")
    return MAIN_PART


def _refuse_other_formats(package: Package) -> None:
    for prefix, name in OTHER_FORMATS.items():
        if package.has_folder(prefix):
            raise DocxError("unsupported-media-type", f"{name}, no Word document")


def _read_if_there(package: Package, part: str | None, handler: StylesReader | NumberingReader | BodyReader) -> None:
    if part is not None and part in package:
        package.parse(part, handler)


def _notes(
    package: Package,
    targets: Mapping[str, str],
    styles: StylesReader,
    numbering: NumberingReader,
    references: dict[tuple[str, str], int],
) -> str:
    """The notes that the text refers to, in its order."""
    referred = dict(references)  # a note's own references come to nothing
    found: dict[tuple[str, str], str] = {}
    for kind in ("footnote", "endnote"):
        if any(key[0] == kind for key in referred):
            reader = BodyReader(styles, Counters(numbering), {})
            _read_if_there(package, targets.get(f"{kind}s"), reader)
            found |= {(kind, name): on_one_line(blocks) for name, blocks in reader.notes.items()}
    return "\n".join(f"[^{mark}]: {found[key]}" for key, mark in referred.items() if found.get(key))
