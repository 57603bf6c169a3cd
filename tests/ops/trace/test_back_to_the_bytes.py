"""From a document to the stored bytes it was read from, and to what was decided about it."""

import gzip
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from infra.artifacts.artifact import Artifact
from ops.attrition import Outcome
from ops.config import NormalizeConfig, StoreConfig
from ops.crawl.config import RawConfig
from ops.crawl.raw import raw
from ops.extract.config import ExtractConfig
from ops.extract.documents import extract
from ops.join import read_labels
from ops.normalize import normalize
from ops.observe import observe
from ops.shards import MisalignedShardError, read_table, shard_names
from ops.trace.documents import TracedDocument, documents_with_id, documents_with_url, text_of
from ops.trace.fate import fate_of
from ops.trace.records import LostRecordError, record_of
from tests.builders import artifact_of, run_program
from tests.ops.crawl.index.crawls import Row, columnar, digest_of, index_source, small_crawl, write_index
from tests.ops.extract.archives import html, http, raw_artifact, warc
from tests.ops.stores import Document, store_inputs


def built(raw_found: Artifact, directory: Path) -> Artifact:
    extracted = run_program(extract, ExtractConfig(), directory / "extracted", raw=raw_found)
    return run_program(normalize, NormalizeConfig(shard_bytes=3000), directory / "normalized", extracted=extracted)


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], tuple[Row, ...], Artifact, Artifact]:
    """A crawl fetched by its index, one page of it twice; and its documents."""
    root = tmp_path_factory.mktemp("crawl")
    crawl = small_crawl()
    first = crawl.rows[0]
    page = gzip.decompress(crawl.files[first.archive][first.offset : first.offset + first.length]).partition(b"\r\n\r\n")[2].rstrip(b"\r\n")
    twin = gzip.compress(warc("response", "http://twin.example/", page), mtime=0)
    files = {**crawl.files, "twins.warc.gz": twin}
    rows = (*crawl.rows, replace(first, url="http://twin.example/", archive="twins.warc.gz", offset=0, length=len(twin)))
    index = write_index(root / "index", {"part-0.parquet": columnar(rows)})
    archive = write_index(root / "archive", files)
    source = index_source(index, str(archive))
    found = run_program(raw, RawConfig(source=source, observed=observe(source)), root / "raw")
    return files, rows, found, built(found, root)


def test_every_document_leads_to_the_bytes_of_its_archive(crawled: tuple[dict[str, bytes], tuple[Row, ...], Artifact, Artifact]):
    """And back: from each row of the index, by its URL, to a document that leads to this row."""
    files, rows, found, normalized = crawled
    assert len(shard_names(normalized)) > 1
    copies = 0
    for row in rows:
        [document] = documents_with_url("web", normalized, row.url)
        record = record_of(found, document)
        assert record.place is not None
        assert (record.place.archive, record.place.offset, record.place.length) == (row.archive, row.offset, row.length)
        assert record.stored == files[row.archive][row.offset : row.offset + row.length]
        assert digest_of(record.block.partition(b"\r\n\r\n")[2]) == row.digest
        assert record.head["warc-target-uri"] == row.url
        assert text_of(normalized, document).split()[0] in record.block.decode()
        copies += document.is_copy
    assert copies == 1


def test_an_id_finds_the_document_and_its_copies(crawled: tuple[dict[str, bytes], tuple[Row, ...], Artifact, Artifact]):
    _, rows, _, normalized = crawled
    [twin] = documents_with_url("web", normalized, "http://twin.example/")
    both = list(documents_with_id("web", normalized, frozenset({twin.id})))
    assert sorted(one.url for one in both) == sorted(["http://twin.example/", rows[0].url])
    assert sorted(one.is_copy for one in both) == [False, True]
    assert len({text_of(normalized, one) for one in both}) == 1
    for name in shard_names(normalized):
        for row, id in enumerate(read_table(normalized, name, ["id"])["id"].to_pylist()):
            assert [(one.shard, one.row) for one in documents_with_id("web", normalized, frozenset({id})) if not one.is_copy] == [
                (name, row)
            ]


def test_records_of_plain_archives_and_of_shared_members_are_found(tmp_path: Path):
    pages = [warc("response", f"http://a.example/{n}", http(html(f"page {n} " * 9))) for n in range(3)]
    found = raw_artifact(tmp_path / "raw", {"warc/a.warc": b"".join(pages), "warc/b.warc.gz": gzip.compress(b"".join(pages[:2]), mtime=0)})
    normalized = built(found, tmp_path)
    urls = [document.url for n in range(3) for document in documents_with_url("a", normalized, f"http://a.example/{n}")]
    assert len(urls) == 5  # two pages twice, one of each a copy
    for n in range(3):
        for document in documents_with_url("a", normalized, f"http://a.example/{n}"):
            record = record_of(found, document)
            assert record.head["warc-target-uri"] == document.url
            assert record.place is None
            if document.warc_file == "warc/a.warc":
                assert record.stored == pages[n]


def test_a_document_of_no_archive_leads_to_its_payload(tmp_path: Path):
    payloads = pa.table(
        {"uri": ["texts:a.txt", "texts:b.txt"], "media_type": ["text/plain"] * 2, "payload": [b"first text", b"second text"]}
    )
    found = artifact_of(tmp_path / "raw", {"files-00000.parquet": payloads})
    normalized = built(found, tmp_path)
    [document] = documents_with_url("texts", normalized, "texts:b.txt")
    record = record_of(found, document)
    assert (record.file, record.offset, record.stored) == ("files-00000.parquet", 1, b"second text")


def test_a_record_that_is_not_there_is_an_error_that_says_what_is(crawled: tuple[dict[str, bytes], tuple[Row, ...], Artifact, Artifact]):
    _, rows, found, normalized = crawled
    [document] = documents_with_url("web", normalized, rows[1].url)
    with pytest.raises(LostRecordError, match=rf"at \d+ of warc/00000\.warc\.gz lies {re.escape(rows[1].url)}, not http://x\.example/"):
        record_of(found, replace(document, url="http://x.example/"))
    with pytest.raises(LostRecordError, match="holds no payload"):
        record_of(found, replace(document, warc_file=None))


@pytest.mark.parametrize(
    ("document", "outcome"),
    [
        (Document("a", (2, 3)), Outcome.OUT),
        (Document("b", (2, 3), contaminated=True, fuzzy=True), Outcome.CONTAMINATED),
        (Document("c", (2, 3), fuzzy=True), Outcome.FUZZY),
        (Document("d", (2, 3), held_out=True, exact=True), Outcome.HELD_OUT_DUPLICATE),
        (Document("e", (2, 3), language="de"), Outcome.LANGUAGE),
        (Document("g", (), language="de"), Outcome.EMPTIED),
        (Document("f", (2, 3), score=0.01, quality=0), Outcome.QUALITY),
    ],
)
def test_a_documents_fate_is_the_stores_own_word(tmp_path: Path, document: Document, outcome: Outcome):
    others = [Document(f"other {n}", (4, 5, 6)) for n in range(9)]
    inputs = store_inputs(tmp_path, {"web": [*others, document]}, shards=2)
    sets = {name: inputs[name]["web"] for name in ("normalized", "language", "quality", "contamination", "tokens")}  # type: ignore[index]
    duplicates = {kind: inputs[f"{kind}_duplicates"] for kind in ("exact", "fuzzy")}
    shard, row = next(
        (name, ids.index(document.id)) for name in shard_names(sets["normalized"])
        if document.id in (ids := read_table(sets["normalized"], name, ["id"])["id"].to_pylist())
    )  # fmt: skip
    traced = TracedDocument("web", document.id, "u", "t", "e", None, None, None, document.held_out, shard, row, False)
    with pytest.raises(MisalignedShardError, match="of normalized is of another document"):
        fate_of(replace(traced, id="other"), sets, duplicates, StoreConfig())  # type: ignore[arg-type]
    fate = fate_of(traced, sets, duplicates, StoreConfig(languages=("en",), min_quality=0.1))  # type: ignore[arg-type]
    assert fate.outcome is outcome
    labels, _, _ = read_labels("web", shard, sets, duplicates, StoreConfig(languages=("en",), min_quality=0.1))  # type: ignore[arg-type]
    assert fate.outcome == labels.outcomes()[row]
    assert fate.said["language"]["language"] == document.language
    assert fate.said["fuzzy"]["is_duplicate"] == document.fuzzy
