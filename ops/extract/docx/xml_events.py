"""XML as events, from expat: no tree, no document type, no entities but the five, bounded depth."""

from collections.abc import Iterable, Mapping
from typing import Protocol
from xml.parsers import expat

from ops.extract.docx.errors import DocxError

PREFIXES = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": "w:",
    "http://purl.oclc.org/ooxml/wordprocessingml/main": "w:",  # the same in files saved as "strict"
    "http://schemas.openxmlformats.org/officeDocument/2006/math": "m:",
    "http://purl.oclc.org/ooxml/officeDocument/math": "m:",
    "http://schemas.openxmlformats.org/markup-compatibility/2006": "mc:",
}
OTHER = "?:"
NOTHING: Mapping[str, str] = {}


class Handler(Protocol):
    """Takes the events of one part. Only the elements of `reads` are given their attributes."""

    reads: frozenset[str]

    def start(self, name: str, attributes: Mapping[str, str]) -> None: ...

    def end(self, name: str) -> None: ...

    def text(self, data: str) -> None: ...


class _Names(dict[str, str]):
    """`{namespace} {local}` to a short name, remembered. Attributes without a namespace keep their name."""

    def __missing__(self, name: str) -> str:
        namespace, space, local = name.rpartition(" ")
        short = (PREFIXES.get(namespace, OTHER) if space else "") + local
        if len(self) < 10_000:  # a file can't grow it without end
            self[name] = short
        return short


def feed(chunks: Iterable[bytes], part: str, handler: Handler, *, max_depth: int, max_elements: int) -> None:
    """Parse a part.

    Raises:
        DocxError: not well-formed; a document type is declared, which OOXML forbids; nested deeper than `max_depth`, or
            longer than `max_elements`.
    """
    names = _Names()
    reads = handler.reads
    depth = elements = 0
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True

    def start(name: str, attributes: Mapping[str, str]) -> None:
        nonlocal depth, elements
        depth += 1
        elements += 1
        if depth > max_depth:
            raise DocxError("bomb", f"elements of {part} are nested more than {max_depth} deep")
        if elements > max_elements:
            raise DocxError("bomb", f"{part} has more than {max_elements} elements")
        short = names[name]
        handler.start(short, {names[key]: value for key, value in attributes.items()} if short in reads else NOTHING)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        handler.end(names[name])

    def refuse(*_: object) -> None:
        raise DocxError("broken-file", f"{part} declares a document type; OOXML forbids it, and entities can hide a bomb")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = handler.text
    parser.StartDoctypeDeclHandler = refuse
    try:
        for chunk in chunks:
            parser.Parse(chunk, False)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise DocxError("broken-file", f"{part} is not well-formed XML: {error}") from error
    except (LookupError, UnicodeError) as error:  # an encoding that Python doesn't know
        raise DocxError("broken-file", f"{part}: {error}") from error
