"""Damaged web archives, pages, PDFs and Word files, by number: a seed and a number give the same case for ever.

Archives and Word files are damaged twice over: as stored, which mostly breaks the container, and inside, before they are packed
again, which reaches what reads the contents.
"""

import gzip
import random
import re
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path

import pyarrow as pa

from ops.extract.interpret import BOOKKEEPING_KINDS
from ops.extract.records import Record, read_records
from tests.ops.extract import archives
from tests.ops.extract.docx_files import cell, docx, item, paragraph, styled, table, zipped
from tests.ops.extract.fuzzing import mutated
from tests.ops.extract.pdf_files import pdf

LARGEST_SEED = 96 << 10  # bytes as stored: many small cases find more than a few large ones
MOST_SEEDS = 250  # of a kind, spread over the files in order
RECORDS = 3  # in an archive that is packed again
BOOKS_STRIDE = 10  # requests, metadata and the like end as rejects before anything reads them
SEED_STRIDE = 1 << 32  # cases of two seeds never meet


@dataclass(frozen=True)
class Case:
    """What is to be read: an archive, or a payload of the media type that a server would name."""

    kind: str
    media_type: str | None
    data: bytes


@dataclass(frozen=True)
class Originals:
    """Undamaged files by kind, and archives as single records."""

    plain: tuple[bytes, ...]
    gzipped: tuple[bytes, ...]
    records: tuple[bytes, ...]
    pages: tuple[bytes, ...]
    pdfs: tuple[bytes, ...]
    docx: tuple[bytes, ...]


def case_of(originals: Originals, seed: int, number: int) -> Case:
    """The case of this number; kinds take turns."""
    kinds = tuple(KINDS)
    kind = kinds[number % len(kinds)]
    media_type, make = KINDS[kind]
    return Case(kind, media_type, make(originals, seed * SEED_STRIDE + number))


def _packed(pack: Callable[[bytes], bytes]) -> Callable[[Originals, int], bytes]:
    """A few records, one of them damaged, each packed by itself."""

    def make(originals: Originals, case: int) -> bytes:
        chance = random.Random(f"records {case}")
        records = chance.choices(originals.records, k=RECORDS)
        records[chance.randrange(RECORDS)] = mutated(list(originals.records), case)
        return b"".join(map(pack, records))

    return make


def _zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


def _damaged_zstd(originals: Originals, case: int) -> bytes:
    chance = random.Random(f"archive {case}")
    stored = b"".join(map(_zstd, chance.choices(originals.records, k=RECORDS)))
    return mutated([stored], case)


def _damaged_part(originals: Originals, case: int) -> bytes:
    """A Word file with one part damaged before it is packed, so that no checksum stands in the way."""
    chance = random.Random(f"part {case}")
    with zipfile.ZipFile(BytesIO(chance.choice(originals.docx))) as archive:
        parts = {name: archive.read(name) for name in archive.namelist() if name.endswith((".xml", ".rels"))}
    name = chance.choice(sorted(parts))
    return zipped({**parts, name: mutated([parts[name]], case)})


KINDS: dict[str, tuple[str | None, Callable[[Originals, int], bytes]]] = {
    "warc": (None, lambda originals, case: mutated(list(originals.plain), case)),
    "warc.gz": (None, lambda originals, case: mutated(list(originals.gzipped), case)),
    "warc.gz, inside": (None, _packed(_gzip)),
    "warc.zst": (None, _damaged_zstd),
    "warc.zst, inside": (None, _packed(_zstd)),
    "html": ("text/html", lambda originals, case: mutated(list(originals.pages), case)),
    "pdf": ("application/pdf", lambda originals, case: mutated(list(originals.pdfs), case)),
    "docx": (
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        lambda originals, case: mutated(list(originals.docx), case),
    ),
    "docx, inside": ("application/octet-stream", _damaged_part),
}


@cache
def originals_of(data: Path | None) -> Originals:
    """Built files, and beside them the real ones below `data` where there are such."""
    built = _built()
    if data is None:
        return built
    plain = _files(data / "crawl", "**/*.warc", "**/*.arc")
    gzipped = _files(data / "crawl", "**/*.warc.gz", "**/*.arc.gz")
    held, books = _records([*plain, *map(_unzipped, gzipped)])
    raw_pages = _files(data / "html_extraction", "**/*.html")
    pages = [*raw_pages, *map(_unzipped, _files(data / "html_extraction", "**/*.html.gz") + _files(data / "crawl", "**/*.html.gz"))]
    return Originals(
        plain=(*built.plain, *plain),
        gzipped=(*built.gzipped, *gzipped),
        records=(*built.records, *_spread(held), *_spread(books)[::BOOKS_STRIDE]),
        pages=(*built.pages, *_spread(pages)),
        pdfs=(*built.pdfs, *_files(data / "pdf", "**/*.pdf")),
        docx=(*built.docx, *_files(data / "docx", "**/*.docx")),
    )


def _files(folder: Path, *patterns: str) -> list[bytes]:
    paths = sorted(path for pattern in patterns for path in folder.glob(pattern) if 0 < path.stat().st_size <= LARGEST_SEED)
    return [path.read_bytes() for path in _spread(paths)]


def _spread[T](found: Sequence[T]) -> list[T]:
    """At most `MOST_SEEDS` of them, evenly."""
    step = max(1, -(-len(found) // MOST_SEEDS))
    return list(found[::step])


def _unzipped(data: bytes) -> bytes:
    """What a gzip file holds, as far as it can be read, and no more than a seed may have."""
    found = b""
    while data and len(found) < LARGEST_SEED:
        member = zlib.decompressobj(31)
        try:
            found += member.decompress(data, LARGEST_SEED - len(found))
        except zlib.error:
            break
        data = member.unused_data
    return found


def _records(files: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The records of archives as bytes: those with a payload, and a crawl's books.

    A payload's digest is renamed: it would reject all that is damaged behind it.
    """
    found: tuple[list[bytes], list[bytes]] = [], []
    for archive in files:
        for record in read_records(BytesIO(archive), 0):
            if isinstance(record, Record):
                stored = archive[record.offset : record.offset + record.length]
                found[record.kind in BOOKKEEPING_KINDS].append(re.sub(rb"(?i)\bWARC-(Payload-Digest|Truncated)", rb"X-\1", stored))
    return found


def _built() -> Originals:
    """One file of every kind with what its reader knows about."""
    chunked = b"5\r\nTides\r\n14\r\n and the harbour page\r\n0\r\n\r\n"
    records = (
        archives.warc("warcinfo", "", b"software: built\r\n", content_type="application/warc-fields"),
        archives.page("http://h.example/a", "Tides and the harbour. " * 20),
        archives.warc("response", "http://h.example/b", archives.http(chunked, headers={"Transfer-Encoding": "chunked"})),
        archives.warc(
            "response", "http://h.example/c", archives.http(_gzip(archives.html("packed " * 90)), headers={"Content-Encoding": "gzip"})
        ),
        archives.warc("response", "http://h.example/d", archives.http(pdf([["a page", "of lines"]]), media_type="application/pdf")),
    )
    body = styled("H2", "Tides") + item("one") + item("two", 2) + table(cell("a") + cell("b"), cell("c") + cell(paragraph("d") * 3))
    return Originals(
        plain=(b"".join(records),),
        gzipped=(archives.gzipped(records),),
        records=records,
        pages=(archives.html("Tides and the harbour. " * 40), "<p>é\u3000<table><tr><td>1</table><pre>x\n y</pre>".encode()),
        pdfs=(pdf([["first page", "of two lines"], ["second page"]]), pdf([["locked"]], password="")),
        docx=(docx(body),),
    )
