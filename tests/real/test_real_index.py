"""Every web archive of the real data as the archive of a crawl: indexed by another reader, fetched by range over HTTP."""

import base64
import gzip
import hashlib
import io
import zlib
from pathlib import Path

import pytest
from fastwarc import ArchiveIterator, WarcRecordType

from infra.artifacts.artifact import Artifact
from ops.crawl.config import RawConfig
from ops.crawl.index.reasons import FetchReason
from ops.crawl.raw import raw
from ops.extract.config import ExtractConfig
from ops.extract.documents import extract
from ops.observe import observe
from ops.shards import read_table
from tests.builders import run_program
from tests.ops.crawl.index.archive_server import serving_archives
from tests.ops.crawl.index.crawls import Row, cdxj, columnar, index_source, write_index
from tests.real.real_data import REAL_DATA, needs_real_data

pytestmark = needs_real_data

CRAWL = REAL_DATA / "crawl"
GIANT = "giant_html"  # expands to 421 MB; tests of the reader cover it


@pytest.fixture(scope="module")
def archives() -> dict[str, bytes]:
    """Archives of WARC records, gzipped by record or not compressed, whatever else is wrong with them."""
    paths = sorted(path for path in CRAWL.rglob("*.warc*") if path.suffix in (".warc", ".gz") and GIANT not in path.name)
    return {
        path.relative_to(CRAWL).as_posix(): path.read_bytes() for path in paths if ".warc.wat" not in path.name and ".wet" not in path.name
    }


@pytest.fixture(scope="module")
def rows(archives: dict[str, bytes]) -> list[Row]:
    """What fastwarc finds: place, URL, status and the digest of the body as it is stored, computed here."""
    found = []
    for name, data in archives.items():
        try:
            for record in ArchiveIterator(io.BytesIO(data), record_types=WarcRecordType.response, parse_http=False):
                head, separator, body = record.reader.read().partition(b"\r\n\r\n")
                status = head.split(b"\r\n")[0].split(b" ")
                code = int(status[1]) if len(status) > 1 and status[1].isdigit() and len(status[1]) == 3 else None
                media_type = next(
                    (line.partition(b":")[2].strip() for line in head.split(b"\r\n") if line.lower().startswith(b"content-type:")), b""
                )
                url = record.headers.get("WARC-Target-URI", "").strip("<>")
                digest = base64.b32encode(hashlib.sha1(body).digest()).decode() if separator else None
                found.append((name, record.stream_pos, url, code, media_type.decode("latin-1"), digest))
        except OSError:  # broken on purpose; what came before counts
            continue
    ends = {(name, start): end for name, start, end in _ends(archives, found)}
    return [
        Row(url, name, start, ends[name, start] - start, digest, code, media_type, None)
        for name, start, url, code, media_type, digest in found
        if url and (name, start) in ends
    ]


def _ends(archives: dict[str, bytes], found: list[tuple[str, int, str, int | None, str, str | None]]) -> list[tuple[str, int, int]]:
    """Where each record ends: its gzip member's end, or its own length's."""
    ends = []
    for name, start in dict.fromkeys((row[0], row[1]) for row in found):
        data = archives[name]
        if data[start : start + 2] == b"\x1f\x8b":
            inflater = zlib.decompressobj(31)
            inflater.decompress(data[start:])
            if inflater.eof:
                ends.append((name, start, len(data) - len(inflater.unused_data)))
        else:
            head, _, _ = data[start:].partition(b"\r\n\r\n")
            length = next(
                (int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), None
            )
            if length is not None:
                ends.append((name, start, start + len(head) + 4 + length))
    return ends


@pytest.fixture(scope="module")
def fetched(archives: dict[str, bytes], rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    root = tmp_path_factory.mktemp("index")
    half = len(rows) // 2
    index = write_index(root / "index", {"part-0.parquet": columnar(rows[:half]), "part-1.cdxj": cdxj(rows[half:])})
    with serving_archives(archives) as server:
        every_type = sorted({row.declared.partition(";")[0].strip() for row in rows if row.declared})
        source = index_source(index, server.root, gap_bytes=4096, task_bytes=1 << 20, media_types=every_type)
        artifact = run_program(raw, RawConfig(source=source, observed=observe(source)), root / "raw")
        print(f"\n{len(archives)} archives, {len(rows)} index rows, {len(server.requests)} requests; {artifact.stats}")
    return artifact


def test_every_row_of_the_index_is_a_record_a_typed_error_or_left_out_with_its_reason(fetched: Artifact, rows: list[Row]) -> None:
    stats = fetched.stats
    assert stats["index_rows"] == len(rows)
    assert len(rows) == stats["records"] + stats["fetch_errors"] + stats["index_repeated"] + sum(stats["index_left_out"].values())
    assert set(stats["fetch_errors_by_reason"]) <= set(FetchReason)
    assert stats["records"] >= 900


def test_each_record_is_the_bytes_that_lie_in_its_archive(fetched: Artifact, archives: dict[str, bytes]) -> None:
    """A gzip member of its own is the archive's to the byte; any other record inflates to what lies there."""
    for row in read_table(fetched, "records.parquet").to_pylist():
        with fetched.open(row["warc_file"]) as stream:
            stream.seek(row["warc_offset"])
            member = stream.read(row["warc_length"])
        stored = archives[row["archive"]][row["archive_offset"] : row["archive_offset"] + row["archive_length"]]
        if stored[:2] != b"\x1f\x8b":
            assert gzip.decompress(member).rstrip() == stored.rstrip(), row["url"]
        elif member != stored:
            assert gzip.decompress(member) in gzip.decompress(stored), row["url"]
        assert row["verified_by"] == "index"


def test_the_records_are_read_by_the_next_stage(fetched: Artifact, tmp_path: Path) -> None:
    texts = run_program(extract, ExtractConfig(), tmp_path / "text", raw=fetched)
    print(f"\n{texts.stats}")
    assert texts.stats["records"] == fetched.stats["records"]
    assert texts.stats["documents"] >= 300
    assert not {"digest-mismatch", "truncated", "bad-record", "bad-http"} & set(texts.stats["rejects"])  # fetching saw to it
