"""Slices: named sets of documents that models are compared on. A key is interface: it never changes its meaning, it is only added to."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

KEY = re.compile(r"[a-z0-9][a-z0-9_]*(/[a-z0-9][a-z0-9_-]*)+")

Loss = Literal["raw", "supervised"]
"""raw: every byte of a document is scored. supervised: only its target's bytes, given all before them."""

Fidelity = Literal["high", "low"]
"""low: losses on such text say little about the ability it is named after (retrieval, instructions) without a generative companion."""


class SliceError(ValueError):
    """A slice that can't be scored or compared; the message names key and document."""


@dataclass(frozen=True)
class TextDocument:
    """One document, in text that is UTF-8 (unpaired surrogates escaped as `infra.archive.records` does).

    Attributes:
        name: unique in its slice.
        target: first and last (exclusive) byte that count; None for all of them.
        is_cut: whether the source's document was longer.
    """

    name: str
    text: str
    target: tuple[int, int] | None = None
    is_cut: bool = False

    @property
    def digest(self) -> str:
        """SHA-256 of the text and its target: what tells whether two slices hold one thing twice."""
        return hashlib.sha256(f"{self.target}\0{self.text}".encode()).hexdigest()


@dataclass(frozen=True)
class Slice:
    """Documents under a hierarchical key, such as `held_out/code`.

    Attributes:
        tags: `family`, `source`, `loss` and `fidelity`; what roll-ups group by.
    """

    key: str
    documents: Sequence[TextDocument]
    loss: Loss
    source: str
    fidelity: Fidelity = "high"
    more_tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def tags(self) -> dict[str, str]:
        family = self.key.partition("/")[0]
        return {"family": family, "source": self.source, "loss": self.loss, "fidelity": self.fidelity, **self.more_tags}


def supervised(name: str, before: str, target: str) -> TextDocument:
    """A document of which only the end counts."""
    start = len(before.encode())
    return TextDocument(name, before + target, (start, start + len(target.encode())))


def limited(documents: Iterable[TextDocument], max_documents: int, max_bytes: int) -> list[TextDocument]:
    """The first documents, each cut to `max_bytes` between two characters; one whose target would be cut is left out."""
    kept: list[TextDocument] = []
    for document in documents:
        if len(kept) == max_documents:
            break
        data = document.text.encode()
        if len(data) <= max_bytes:
            kept.append(document)
        elif document.target is None:
            kept.append(TextDocument(document.name, data[:max_bytes].decode(errors="ignore"), None, True))
    return kept


def checked(slices: Sequence[Slice]) -> list[Slice]:
    """Slices by key.

    Raises:
        SliceError: a key that is none or occurs twice, a slice without documents, a document without text, a target that is
            no part of it or cuts a character, or one text in two slices.
    """
    seen: dict[str, str] = {}
    keys: set[str] = set()
    for found in slices:
        if not KEY.fullmatch(found.key):
            raise SliceError(f"slice {found.key!r}: a key is lower-case names with slashes between them, and two at least")
        if found.key in keys:
            raise SliceError(f"slice {found.key}: two providers give it; give one of them another key")
        keys.add(found.key)
        if not found.documents:
            raise SliceError(f"slice {found.key}: it has no document; provide some, or leave it out")
        for document in found.documents:
            where = f"slice {found.key}, document {document.name!r}"
            for problem in _problems(found, document):
                raise SliceError(f"{where}: {problem}")
            if (other := seen.setdefault(document.digest, where)) != where:
                raise SliceError(f"{where}: it is also {other}; a text counted twice weighs twice, so remove one")
    return sorted(slices, key=lambda found: found.key)


def _problems(found: Slice, document: TextDocument) -> Iterator[str]:
    if not document.text:
        yield "it has no text"
        return
    if (document.target is None) != (found.loss == "raw"):
        yield f"the slice's loss is {found.loss} and its target is {document.target}; raw documents have none, supervised ones have one"
        return
    if document.target is None:
        return
    start, end = document.target
    data = document.text.encode()
    if not 0 <= start < end <= len(data):
        yield f"its target {document.target} is no part of its {len(data)} bytes"
    elif any(place < len(data) and data[place] & 0xC0 == 0x80 for place in (start, end)):
        yield f"its target {document.target} begins or ends inside a character"
