"""PDF and DOCX payloads on their way through `extract`: from web archives and from files, whatever they are labelled."""

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from infra.artifacts.artifact import Artifact
from ops.crawl.config import FilesSource, RawConfig
from ops.crawl.payloads import PAYLOAD_SCHEMA
from ops.crawl.raw import raw
from ops.extract.config import ExtractConfig
from ops.extract.documents import extract
from ops.extract.media import DOCX_MEDIA_TYPE
from ops.shards import read_table, shard_names
from tests.builders import artifact_of, run_program
from tests.ops.extract.archives import gzipped, html, http, page, raw_artifact, warc
from tests.ops.extract.docx_files import docx, paragraph, zipped
from tests.ops.extract.pdf_files import pdf

URI = "http://h.example/file"
PDF, DOCX = pdf([["A page of text."], ["Another page."]]), docx(paragraph("A document of words."))


def documents(artifact: Artifact) -> list[dict[str, Any]]:
    return [row for name in shard_names(artifact) for row in read_table(artifact, name).to_pylist()]


def outcome_of(body: bytes, media_type: str, tmp_path: Path, **headers: str) -> str:
    """The document's media type, or the reason for the reject."""
    record = warc("response", URI, http(body, media_type=media_type, headers=headers))
    artifact = run_program(extract, ExtractConfig(), tmp_path / "out", raw=raw_artifact(tmp_path / "raw", {"warc/a.warc": record}))
    found, left = documents(artifact), read_table(artifact, "rejects.parquet").to_pylist()
    assert len(found) + len(left) == 1 == artifact.stats["records"]
    return str(found[0]["media_type"] if found else left[0]["reason"])


@pytest.mark.parametrize(
    ("body", "label", "outcome"),
    [
        (PDF, "application/pdf", "application/pdf"),
        (PDF, "application/octet-stream", "application/pdf"),
        (PDF, "text/html", "application/pdf"),
        (b"\r\n \r\n" + PDF, "", "application/pdf"),
        (b"junk before " + PDF, "application/pdf", "application/pdf"),
        (DOCX, DOCX_MEDIA_TYPE, DOCX_MEDIA_TYPE),
        (DOCX, "application/zip", DOCX_MEDIA_TYPE),
        (DOCX, "application/msword", DOCX_MEDIA_TYPE),
        (html("Login"), "application/pdf", "broken-file"),
        (html("Login"), DOCX_MEDIA_TYPE, "broken-file"),
        (zipped({"a.txt": "words"}), "application/zip", "unsupported-media-type"),
        (zipped({"a.txt": "words"}), "text/plain", "binary"),
        (zipped({"a.txt": "words"}), DOCX_MEDIA_TYPE, "unsupported-media-type"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "application/msword", "unsupported-media-type"),
        (pdf([["x"]], password="secret"), "application/pdf", "encrypted"),
        (pdf([[]]), "application/pdf", "empty-text"),
        (PDF[:100], "application/pdf", "broken-file"),
        (DOCX[:100], DOCX_MEDIA_TYPE, "broken-file"),
    ],
)
def test_the_bytes_say_what_a_payload_is(body: bytes, label: str, outcome: str, tmp_path: Path) -> None:
    assert outcome_of(body, label, tmp_path) == outcome


def test_a_compressed_response_is_decoded_first(tmp_path: Path) -> None:
    assert outcome_of(gzip.compress(PDF), "application/pdf", tmp_path, **{"Content-Encoding": "gzip"}) == "application/pdf"


def test_a_document_keeps_the_way_back_and_its_pages(tmp_path: Path) -> None:
    archive = gzipped([page("http://h.example/1", "first"), warc("response", URI, http(PDF, media_type="application/pdf"))])
    artifact = run_program(extract, ExtractConfig(), tmp_path / "out", raw=raw_artifact(tmp_path / "raw", {"warc/a.warc.gz": archive}))
    first, found = documents(artifact)
    assert first["page_starts"] is None
    assert [found["text"][start:].split("\n")[0] for start in found["page_starts"]] == ["A page of text.", "Another page."]
    assert (found["source_id"], found["warc_file"], found["warc_offset"]) == (URI, "warc/a.warc.gz", first["warc_length"])
    assert PDF in gzip.decompress(archive[found["warc_offset"] :][: found["warc_length"]])
    assert (artifact.stats["pages"], artifact.stats["ocr_pages"], artifact.stats["broken_pages"]) == (2, 0, 0)


def test_files_of_a_folder_are_read_by_their_suffix(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, data in {
        "a.pdf": PDF,
        "b.docx": DOCX,
        "c.docm": DOCX,
        "d.pdf.gz": gzip.compress(PDF),
        "e.pdf": b"no",
        "f.dotx": DOCX,
    }.items():
        (folder / name).write_bytes(data)
    source = FilesSource(domain="d", licence="l", label="f", root=str(folder))
    found = run_program(extract, ExtractConfig(), tmp_path / "out", raw=run_program(raw, RawConfig(source=source), tmp_path / "raw"))
    assert [row["source_id"] for row in documents(found)] == ["f:a.pdf", "f:b.docx", "f:c.docm", "f:d.pdf.gz", "f:f.dotx"]
    assert found.stats["rejects"] == {"broken-file": 1}


def test_extracting_again_gives_the_same_bytes(tmp_path: Path) -> None:
    rows = [("f:a", "application/pdf", PDF), ("f:b", DOCX_MEDIA_TYPE, DOCX), ("f:c", "application/pdf", b"%PDF-"), ("f:d", "", PDF[:-40])]
    table = pa.Table.from_arrays([pa.array(column) for column in zip(*rows, strict=True)], schema=PAYLOAD_SCHEMA)
    source = artifact_of(tmp_path / "raw", {"files-00000.parquet": table})
    first, second = (run_program(extract, ExtractConfig(), tmp_path / name, raw=source) for name in "12")
    assert first.digest == second.digest
    assert (first.stats["documents"], first.stats["rejects"]) == (2, {"broken-file": 2})
