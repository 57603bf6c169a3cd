import base64
import gzip
import hashlib
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastwarc import ArchiveIterator

from infra.artifacts.artifact import Artifact
from ops.crawl.payloads import PAYLOAD_SCHEMA
from ops.extract.config import ExtractConfig
from ops.extract.documents import extract
from ops.shards import read_table, shard_names
from tests.builders import artifact_of, run_program
from tests.ops.extract.archives import gzipped, html, http, page, raw_artifact, warc

URI = "http://h.example/page"
PROSE = "The tide comes in twice a day and the harbour fills; boats that lay on mud now float, and the ferry leaves."


def run(raw: Artifact, directory: Path, **changes: Any) -> Artifact:
    return run_program(extract, ExtractConfig(**changes), directory, raw=raw)


def documents(artifact: Artifact) -> list[dict[str, Any]]:
    return [row for name in shard_names(artifact) for row in read_table(artifact, name).to_pylist()]


def rejects(artifact: Artifact) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_table(artifact, "rejects.parquet").to_pylist()
    return rows


def outcome_of(record: bytes, tmp_path: Path, **changes: Any) -> str:
    """'document', or the reason for the reject, of one record."""
    artifact = run(raw_artifact(tmp_path / "raw", {"warc/a.warc.gz": gzipped([record])}), tmp_path / "out", **changes)
    found = documents(artifact)
    left = rejects(artifact)
    assert len(found) + len(left) == 1 == artifact.stats["records"]
    return "document" if found else str(left[0]["reason"])


def response(body: bytes = html(PROSE), *, uri: str = URI, **http_changes: Any) -> bytes:
    return warc("response", uri, http(body, **http_changes))


def sha1(data: bytes) -> str:
    return "sha1:" + base64.b32encode(hashlib.sha1(data).digest()).decode()


def test_a_page_becomes_text_with_the_way_back_to_its_record(tmp_path: Path) -> None:
    archive = gzipped([warc("warcinfo", "", b"software: x"), page("http://h.example/1", "first"), page(URI, PROSE)])
    artifact = run(raw_artifact(tmp_path / "raw", {"warc/a.warc.gz": archive}), tmp_path / "out")
    [_, row] = documents(artifact)
    assert (row["text"], row["source_id"], row["media_type"], row["warc_file"]) == (PROSE, URI, "text/html", "warc/a.warc.gz")
    assert row["extractor"].startswith("resiliparse/")
    record = next(iter(ArchiveIterator(io.BytesIO(archive[row["warc_offset"] :][: row["warc_length"]]))))
    assert (record.headers["WARC-Target-URI"], record.reader.read()) == (URI, html(PROSE))


def test_records_are_documents_plus_rejects(tmp_path: Path) -> None:
    archive = gzipped([warc("warcinfo", "", b""), warc("request", URI, b"GET / HTTP/1.1\r\n\r\n"), page(URI, PROSE)]) + b"tail"
    artifact = run(raw_artifact(tmp_path / "raw", {"warc/a.warc.gz": archive}), tmp_path / "out")
    assert artifact.stats["records"] == 4
    assert artifact.stats["documents"] == len(documents(artifact)) == 1
    assert artifact.stats["rejects"] == {"bad-record": 1, "not-a-response": 2}
    assert artifact.stats["text_bytes"] == len(PROSE)
    assert len(rejects(artifact)) == 3


@pytest.mark.parametrize(
    ("record", "outcome"),
    [
        (response(), "document"),
        (response(b"plain words", media_type="text/plain"), "document"),
        (response(html(PROSE), media_type="application/octet-stream"), "document"),
        (response(gzip.compress(html(PROSE)), headers={"Content-Encoding": "gzip"}), "document"),
        (warc("response", URI, http(html(PROSE)), fields={"WARC-Payload-Digest": sha1(html(PROSE))}), "document"),
        (warc("response", URI, http(html(PROSE)), fields={"WARC-Payload-Digest": "crc32:1234"}), "document"),
        (warc("resource", URI, html(PROSE), content_type="text/html"), "document"),
        (warc("conversion", URI, PROSE.encode(), content_type="text/plain"), "document"),
        (warc("request", URI, b"GET / HTTP/1.1\r\n\r\n"), "not-a-response"),
        (warc("metadata", URI, b"via: x"), "not-a-response"),
        (warc("revisit", URI, http(b"")), "revisit"),
        (warc("monkey", URI, b""), "bad-record"),
        (warc("response", "dns:h.example", b"20260101\nh.example 10.0.0.1", content_type="text/dns"), "not-http"),
        (warc("resource", "metadata://gnu.org/log", b"log", content_type="text/plain"), "not-http"),
        (warc("response", URI, b"<html>no head"), "bad-http"),
        (response(status=404), "http-status"),
        (response(status=206), "http-status"),
        (response(media_type="image/png"), "unsupported-media-type"),
        (response(b"\x89PNG\r\n\x1a\n and more"), "binary"),
        (response(b"\x1f\x8b garbage", headers={"Content-Encoding": "gzip"}), "bad-encoding"),
        (response(b""), "empty-text"),
        (response(html(" ")), "empty-text"),
        (warc("response", URI, http(html(PROSE)), fields={"WARC-Truncated": "length"}), "truncated"),
        (warc("response", URI, http(html(PROSE)), length=9_999), "truncated"),
        (warc("response", URI, http(html(PROSE)), fields={"WARC-Payload-Digest": sha1(b"other")}), "digest-mismatch"),
        (response(b"<p>" + b"x" * 30_000), "too-large"),
        (warc("response", URI, b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 400_000), "too-large"),
        (response(gzip.compress(b"0" * 30_000), headers={"Content-Encoding": "gzip"}), "too-large"),
    ],
)
def test_every_record_ends_as_a_document_or_a_typed_reject(record: bytes, outcome: str, tmp_path: Path) -> None:
    assert outcome_of(record, tmp_path, max_payload_bytes=20_000) == outcome


def test_a_digest_over_the_dechunked_payload_is_accepted_too(tmp_path: Path) -> None:
    body = html(PROSE)
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    for digest in (sha1(body), sha1(chunks)):
        record = warc("response", URI, http(chunks, headers={"Transfer-Encoding": "chunked"}), fields={"WARC-Payload-Digest": digest})
        assert outcome_of(record, tmp_path / digest[-4:]) == "document"


def test_code_and_prose_files_pass_through_decoded(tmp_path: Path) -> None:
    code = "# -*- coding: latin-1 -*-\n\n\tname = 'Förde'\n"
    rows = [
        ("t:a.py", "text/x-python", code.encode("latin-1")),
        ("t:b.md", "text/markdown", b"# Title\n\n- item\n"),
        ("t:c.html", "text/html", html(PROSE)),
        ("t:d", "text/plain", bytes(range(256)) * 4),
        ("t:e.bin", "application/octet-stream", b"words"),
        ("t:f.txt", "text/plain", b" \n"),
    ]
    table = pa.Table.from_arrays([pa.array(column) for column in zip(*rows, strict=True)], schema=PAYLOAD_SCHEMA)
    artifact = run(artifact_of(tmp_path / "raw", {"files-00000.parquet": table}), tmp_path / "out")
    assert [(r["source_id"], r["text"], r["extractor"].partition("/")[0]) for r in documents(artifact)] == [
        ("t:a.py", code, "text"),
        ("t:b.md", "# Title\n\n- item\n", "text"),
        ("t:c.html", PROSE, "resiliparse"),
    ]
    assert all(r["warc_file"] is None and r["warc_offset"] is None for r in documents(artifact))
    assert [(r["uri"], r["reason"]) for r in rejects(artifact)] == [
        ("t:d", "binary"),
        ("t:e.bin", "unsupported-media-type"),
        ("t:f.txt", "empty-text"),
    ]


def test_main_content_keeps_code_and_drops_navigation(tmp_path: Path) -> None:
    body = (
        "<html><body><nav><a href='/'>Home</a> <a href='/about'>About</a></nav>"
        f"<main><h1>Tides</h1><p>{PROSE}</p><pre>def tide(n):\n    return n % 24\n</pre><ul><li>one</li></ul></main>"
        "<footer>Copyright</footer></body></html>"
    ).encode()
    [row] = documents(run(raw_artifact(tmp_path / "raw", {"warc/a.warc": response(body)}), tmp_path / "out"))
    assert "def tide(n):\n    return n % 24" in row["text"]
    assert PROSE in row["text"]
    assert "About" not in row["text"]


def test_a_page_whose_main_content_is_not_found_is_taken_whole(tmp_path: Path) -> None:
    menu = "".join(f"<li><a href='/{n}'>Entry number {n} of a list</a></li>" for n in range(60))
    body = f"<html><body><div class='sidebar nav'><ul>{menu}</ul></div></body></html>".encode()
    [row] = documents(run(raw_artifact(tmp_path / "raw", {"warc/a.warc": response(body)}), tmp_path / "out"))
    assert "Entry number 59 of a list" in row["text"]


def test_the_tail_of_a_truncated_file_is_a_reject_with_its_offset(tmp_path: Path) -> None:
    archive = gzipped([page("http://h.example/1", PROSE), page("http://h.example/2", PROSE)])
    artifact = run(raw_artifact(tmp_path / "raw", {"warc/a.warc.gz": archive[:-30]}), tmp_path / "out")
    [kept] = documents(artifact)
    [tail] = rejects(artifact)
    assert (tail["reason"], tail["warc_file"], tail["warc_offset"]) == ("truncated", "warc/a.warc.gz", kept["warc_length"])


def test_extracting_again_gives_the_same_bytes(tmp_path: Path) -> None:
    raw = raw_artifact(tmp_path / "raw", {f"warc/{n}.warc.gz": gzipped([page(f"http://h.example/{n}", f"{PROSE} {n}")]) for n in range(3)})
    assert run(raw, tmp_path / "1").digest == run(raw, tmp_path / "2").digest
