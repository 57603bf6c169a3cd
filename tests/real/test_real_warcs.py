"""Every web archive of the real data goes through raw, extracted and normalized; nothing is lost and nothing raises."""

import io
import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from fastwarc import ArchiveIterator

from infra.artifacts.artifact import Artifact
from ops.config import NormalizeConfig
from ops.crawl.config import RawConfig, WarcSource
from ops.crawl.raw import raw
from ops.extract.config import ExtractConfig
from ops.extract.documents import extract
from ops.extract.records import Record, read_records
from ops.extract.rejects import Reason
from ops.normalize import normalize
from ops.observe import observe
from ops.shards import read_table, shard_names
from tests.builders import run_program
from tests.real.real_data import REAL_DATA, needs_real_data

pytestmark = needs_real_data

# Also the files with odd names: an LZ4 archive, a broken one, a list of paths, metadata (WAT) and texts (WET).
ARCHIVES = WarcSource(
    domain="web",
    licence="see the data's README",
    root=str(REAL_DATA / "crawl"),
    include=("**/*.warc*", "**/*.arc*", "**/*.ARC"),
)
MAX_PAYLOAD_BYTES = 8 << 20
GIANT = REAL_DATA / "crawl" / "cdx-writer" / "giant_html.warc.gz"


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    root = tmp_path_factory.mktemp("warcs")
    found = run_program(raw, RawConfig(source=ARCHIVES, observed=observe(ARCHIVES)), root / "raw")
    texts = run_program(extract, ExtractConfig(max_payload_bytes=MAX_PAYLOAD_BYTES), root / "extracted", raw=found)
    named = run_program(normalize, NormalizeConfig(shard_bytes=1 << 20), root / "normalized", extracted=texts)
    return {"raw": found, "extracted": texts, "normalized": named}


@pytest.fixture(scope="module")
def documents(stages: dict[str, Artifact]) -> list[dict[str, Any]]:
    extracted = stages["extracted"]
    return [row for name in shard_names(extracted) for row in read_table(extracted, name).to_pylist()]


@pytest.fixture(scope="module")
def rejects(stages: dict[str, Artifact]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_table(stages["extracted"], "rejects.parquet").to_pylist()
    return rows


def test_every_record_ends_as_a_document_or_a_typed_reject(
    stages: dict[str, Artifact], documents: list[dict[str, Any]], rejects: list[dict[str, Any]]
) -> None:
    stats = stages["extracted"].stats
    print(f"\n{len(stages['raw'].names)} files, {stats['records']} records, {stats['documents']} documents, rejects {stats['rejects']}")
    assert stats["records"] == len(documents) + len(rejects)
    assert {row["reason"] for row in rejects} <= set(Reason)
    assert len(documents) >= 360  # 366 HTML pages by the data's own count, a few of them inside WACZ files


def test_every_file_is_accounted_for(stages: dict[str, Artifact], documents: list[dict[str, Any]], rejects: list[dict[str, Any]]) -> None:
    """An archive without a record may only be one that holds nothing but line ends and empty members."""
    silent = set(stages["raw"].names) - {row["warc_file"] for row in [*documents, *rejects]}
    assert {name.rpartition("/")[2] for name in silent} <= {"invalid-empty.warc", "invalid-warcheaderversion-20.warc"}


def test_what_another_reader_reads_is_read(stages: dict[str, Artifact]) -> None:
    """fastwarc as the oracle, on the files it reads to the end."""
    compared = 0
    for name in stages["raw"].names:
        with stages["raw"].open(name) as stream:
            data = stream.read()
        try:
            expected = [
                (r.headers.get("WARC-Target-URI", ""), r.content_length) for r in ArchiveIterator(io.BytesIO(data), parse_http=False)
            ]
        except OSError:
            continue
        ours = [(r.uri, r.block_bytes) for r in read_records(io.BytesIO(data), 0) if isinstance(r, Record)]
        missing = Counter((uri or "").strip("<> ") for uri, _ in expected) - Counter(uri for uri, _ in ours)
        lost = [d for d in read_records(io.BytesIO(data), 0) if not isinstance(d, Record)]
        assert sum(missing.values()) <= len(lost), (name, missing)
        compared += len(expected)
    print(f"\n{compared} records compared")
    assert compared > 3_000


def test_a_document_finds_its_bytes_again(stages: dict[str, Artifact], documents: list[dict[str, Any]]) -> None:
    for row in documents:
        with stages["raw"].open(row["warc_file"]) as stream:
            stream.seek(row["warc_offset"])
            part = stream.read(row["warc_length"])
        again = [r for r in read_records(io.BytesIO(part), MAX_PAYLOAD_BYTES + (1 << 20)) if isinstance(r, Record)]
        assert row["source_id"] in [r.uri for r in again], row["warc_file"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc")
def test_the_page_that_inflates_to_421_megabytes_is_refused_for_its_size(rejects: list[dict[str, Any]]) -> None:
    [giant] = [row for row in rejects if row["warc_file"].endswith("giant_html.warc.gz")]
    assert giant["reason"] == "too-large"
    script = (
        "from ops.extract.records import read_records\n"
        f"with open({str(GIANT)!r}, 'rb') as stream: print([r.block_bytes for r in read_records(stream, {MAX_PAYLOAD_BYTES})])\n"
        "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"  # ru_maxrss would be that of the parent
    )
    sizes, peak_kib = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split("\n")[:2]
    print(f"\n{sizes} bytes read with a peak of {int(peak_kib) >> 10} MiB, the interpreter included")
    assert json.loads(sizes)[0] > 400 << 20
    assert int(peak_kib) < 128 << 10


def test_truncated_archives_keep_what_came_before_the_cut(documents: list[dict[str, Any]], rejects: list[dict[str, Any]]) -> None:
    truncated = {row["warc_file"].rpartition("/")[2] for row in rejects if row["reason"] == "truncated"}
    assert {"clipped.warc.gz", "transfer_compression_none_truncated.warc.gz"} <= truncated
    whole = [row for row in documents if "blackbook-truncated" in row["warc_file"]]
    assert {row["warc_file"].rpartition("truncated")[2] for row in whole} == {".arc", ".arc.gz", ".warc", ".warc.gz"}


def test_one_page_under_three_content_codings_is_one_text(documents: list[dict[str, Any]]) -> None:
    texts = {row["text"] for row in documents if "transfer_compression_" in row["warc_file"] and "webarchive-discovery" in row["warc_file"]}
    assert len(texts) == 1


def test_normalized_balances_and_finds_the_copies(stages: dict[str, Artifact]) -> None:
    stats = stages["normalized"].stats
    print(f"\nnormalized: {stats}")
    assert stats["rows"] == stages["extracted"].stats["documents"] == stats["documents"] + stats["duplicates"] + stats["blank"]
    assert stats["duplicates"] > 50  # the same black book pages lie in several files
