"""From an index to WARC files over a real server: same bytes under any plan, nothing fetched twice, nothing lost."""

import gzip
import io
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fastwarc.stream_io import ZstdWriter, zstd_train_dictionary_from_samples

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from infra.storage.errors import PermanentStorageError, TransientStorageError
from ops.crawl.config import IndexSource, RawConfig
from ops.crawl.index.paths import index_entries
from ops.crawl.listing import SourceError
from ops.crawl.raw import raw
from ops.extract.config import ExtractConfig
from ops.extract.documents import extract
from ops.observe import observe
from ops.shards import read_table
from tests.builders import publish, run_program
from tests.ops.crawl.index.archive_server import cut_after, serving_archives, status, whole_file
from tests.ops.crawl.index.crawls import Crawl, Row, cdxj, columnar, index_source, small_crawl, write_index


def fetched(source: IndexSource, directory: Path) -> Artifact:
    return run_program(raw, RawConfig(source=source, observed=observe(source)), directory)


def members_of(artifact: Artifact) -> list[bytes]:
    found = []
    for row in read_table(artifact, "records.parquet").to_pylist():
        with artifact.open(row["warc_file"]) as stream:
            stream.seek(row["warc_offset"])
            found.append(stream.read(row["warc_length"]))
    return found


def test_what_is_fetched_is_what_the_archives_hold(tmp_path: Path):
    crawl = small_crawl()
    index = write_index(tmp_path / "index", {"a/part-0.parquet": columnar(crawl.rows[:7]), "b/part-1.parquet": columnar(crawl.rows[7:])})
    with serving_archives(crawl.files) as server:
        artifact = fetched(index_source(index, server.root), tmp_path / "raw")
    expected = [
        crawl.files[row.archive][row.offset : row.offset + row.length] for row in sorted(crawl.rows, key=lambda r: (r.archive, r.offset))
    ]
    assert members_of(artifact) == expected
    with artifact.open("warc/00000.warc.gz") as stream:
        assert stream.read() == b"".join(expected)
    assert len(server.requests) == len(crawl.files)  # the gaps between pages are smaller than the limit
    origins = read_table(artifact, "records.parquet")
    assert set(origins["verified_by"].to_pylist()) == {"index"}
    texts = run_program(extract, ExtractConfig(), tmp_path / "text", raw=artifact)
    assert texts.stats["documents"] == len(crawl.rows)


def test_the_bytes_are_the_same_under_any_plan_form_and_place(tmp_path: Path):
    crawl = small_crawl()
    parquet = write_index(tmp_path / "parquet", {"part-0.parquet": columnar(crawl.rows)})
    lines = write_index(
        tmp_path / "cdxj", {"x.cdxj": cdxj(crawl.rows[::2]), "y.cdxj": cdxj(crawl.rows[1::2]), "z.cdxj": cdxj(crawl.rows[:3])}
    )
    archive = write_index(tmp_path / "archive", crawl.files)
    with serving_archives(crawl.files) as server:
        artifacts = [
            fetched(index_source(parquet, server.root, warc_bytes=2000), tmp_path / "1"),
            fetched(index_source(parquet, server.root, warc_bytes=2000, gap_bytes=0, connections=1), tmp_path / "2"),
            fetched(index_source(parquet, str(archive), warc_bytes=2000, task_bytes=1), tmp_path / "3"),
            fetched(index_source(lines, str(archive), warc_bytes=2000, gap_bytes=10_000_000), tmp_path / "4"),
        ]
    assert len({artifact.digest for artifact in artifacts}) == 1
    assert len([name for name in artifacts[0].names if name.startswith("warc/")]) > 2
    assert artifacts[3].stats["index_repeated"] == 3


def test_a_server_at_its_worst_changes_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ops.crawl.index.ranges.MAX_WAIT_S", 0.0)
    crawl = small_crawl()
    index = write_index(tmp_path / "index", {"part-0.parquet": columnar(crawl.rows)})
    with serving_archives(crawl.files) as server:
        calm = fetched(index_source(index, server.root), tmp_path / "calm")
        for name in crawl.files:
            server.faults[name] = [
                status(503, Retry_After="0"),
                cut_after(700),
                whole_file,
                cut_after(1),
                status(403, Retry_After="0"),
                cut_after(900),
            ]
        stormy = fetched(index_source(index, server.root), tmp_path / "stormy")
    assert stormy.digest == calm.digest
    assert not any(server.faults.values())


def broken_rows(crawl: Crawl) -> list[Row]:
    pages = [f"http://site-{n % 5}.example/page/{n}" for n in range(8)]
    last = max((row for row in crawl.rows if row.archive == crawl.row(pages[0]).archive), key=lambda row: row.offset)
    return [
        crawl.row(pages[1], digest="A" * 32),
        replace(crawl.row(pages[2]), url="http://elsewhere.example/"),
        crawl.row(pages[4], archive="crawl-data/gone.warc.gz"),
        replace(last, url="http://late.example/", offset=last.offset + last.length, length=9_000),
        crawl.row(pages[5], length=crawl.row(pages[5]).length - 5),
        crawl.row(pages[7], offset=crawl.row(pages[7]).offset + 3),
        crawl.row(pages[3], status=404),
    ]


def test_a_record_that_cant_be_had_is_a_row_with_its_reason_and_costs_no_other(tmp_path: Path):
    crawl = small_crawl()
    broken = broken_rows(crawl)
    taken = {(row.archive, row.offset) for row in broken} | {
        (row.archive, row.offset) for row in (crawl.row(f"http://site-{n % 5}.example/page/{n}") for n in (4, 5, 7))
    }
    good = [row for row in crawl.rows if (row.archive, row.offset) not in taken]
    index = write_index(tmp_path / "index", {"part-0.parquet": columnar([*broken, *good])})
    with serving_archives(crawl.files) as server:
        artifact = fetched(index_source(index, server.root), tmp_path / "raw")
    errors = {row["uri"]: row["reason"] for row in read_table(artifact, "fetch_errors.parquet").to_pylist()}
    assert errors == {
        "http://site-1.example/page/1": "digest-mismatch",
        "http://elsewhere.example/": "uri-mismatch",
        "http://site-4.example/page/4": "rejected",
        "http://late.example/": "out-of-range",
        "http://site-0.example/page/5": "wrong-length",
        "http://site-2.example/page/7": "missing-record",
    }
    stats = artifact.stats
    assert stats["records"] == len(good)
    assert stats["fetch_errors_by_reason"] == dict.fromkeys(sorted(errors.values()), 1)
    assert stats["index_left_out"] == {"status": 1}
    assert stats["index_rows"] == len(broken) + len(good)


def test_what_may_come_later_is_no_outcome_and_the_rest_is_kept(tmp_path: Path):
    crawl = small_crawl()
    index = write_index(tmp_path / "index", {"part-0.parquet": columnar(crawl.rows)})
    away = sorted(crawl.files)[1]
    with serving_archives(crawl.files) as server:
        source = index_source(index, server.root, max_stalls=1, task_bytes=1)
        config = RawConfig(source=source, observed=observe(source))
        server.faults[away] = [status(503)] * 50
        scratch = str(tmp_path / "scratch")
        with pytest.raises(TransientStorageError, match=r"4 of 12 fetch tasks could not be finished, the others are kept; run again"):
            raw(config, out=Writer(str(tmp_path / "one" / "attempt"), scratch_url=scratch))
        server.faults.clear()
        server.requests.clear()
        out = Writer(str(tmp_path / "two" / "attempt"), scratch_url=scratch)
        stats = raw(config, out=out)
    assert {name for name, _, _ in server.requests} == {away}
    calm = fetched(source.model_copy(update={"archive": str(write_index(tmp_path / "archive", crawl.files))}), tmp_path / "calm")
    assert publish(tmp_path / "two", out, stats.model_dump(mode="json")).digest == calm.digest


KILLED = """
import os, sys
from infra.artifacts.writer import Writer
from ops.crawl.config import RawConfig
from ops.crawl.index import pieces
from ops.crawl.raw import raw
config, scratch, attempt, left = RawConfig.model_validate_json(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
commit = pieces.create_exclusive
def counting(url, data):
    global left
    if left == 0:
        os.kill(os.getpid(), 9)
    left -= 1
    return commit(url, data)
pieces.create_exclusive = counting
raw(config, out=Writer(attempt, scratch_url=scratch))
"""


def test_a_kill_at_a_commit_costs_that_piece_alone_and_no_byte_differs(tmp_path: Path):
    """Killed with -9 just before a commit, in each phase; each attempt goes on from what the ones before it left."""
    crawl = small_crawl(pages=6)
    index = write_index(tmp_path / "index", {"part-0.parquet": columnar(crawl.rows[:3]), "part-1.parquet": columnar(crawl.rows[3:])})
    scratch = str(tmp_path / "scratch")
    with serving_archives(crawl.files) as server:
        source = index_source(index, server.root, connections=1, gap_bytes=0, task_bytes=1)
        config = RawConfig(source=source, observed=observe(source))
        for left in (1, 4):  # of 2 index files and 6 tasks: one piece, then death; then four more
            command = [sys.executable, "-c", KILLED, config.model_dump_json(), scratch, str(tmp_path / f"dead-{left}"), str(left)]
            assert subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": os.getcwd()}).returncode == -signal.SIGKILL
        before = len(server.requests)
        out = Writer(str(tmp_path / "end" / "attempt"), scratch_url=scratch)
        stats = raw(config, out=out)
        assert len(server.requests) - before == 3  # 6 tasks, 3 of them committed by the dead
        calm = fetched(source, tmp_path / "calm")
    assert publish(tmp_path / "end", out, stats.model_dump(mode="json")).digest == calm.digest


def test_a_piece_that_was_damaged_since_is_not_published(tmp_path: Path):
    crawl = small_crawl()
    index = write_index(tmp_path / "index", {"part-0.parquet": columnar(crawl.rows)})
    source = index_source(index, str(write_index(tmp_path / "archive", crawl.files)))
    config = RawConfig(source=source, observed=observe(source))
    raw(config, out=Writer(str(tmp_path / "one"), scratch_url=str(tmp_path / "scratch")))
    [members] = (tmp_path / "scratch").rglob("members")
    data = bytearray(members.read_bytes())
    data[len(data) // 2] ^= 1
    members.write_bytes(data)
    with pytest.raises(PermanentStorageError, match=r"members is not what was committed; remove .*scratch and run again"):
        raw(config, out=Writer(str(tmp_path / "two"), scratch_url=str(tmp_path / "scratch")))


def test_another_plan_needs_no_second_scan_of_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    crawl = small_crawl()
    index = write_index(tmp_path / "index", {"part-0.parquet": columnar(crawl.rows)})
    archive = write_index(tmp_path / "archive", crawl.files)
    source = index_source(index, str(archive))
    config = RawConfig(source=source, observed=observe(source))
    scratch = str(tmp_path / "scratch")
    raw(config, out=Writer(str(tmp_path / "one"), scratch_url=scratch))
    monkeypatch.setattr("ops.crawl.index.discover.read_index", lambda *_: pytest.fail("the index was read again"))
    other = RawConfig(source=source.model_copy(update={"gap_bytes": 0, "task_bytes": 100}), observed=config.observed)
    raw(other, out=Writer(str(tmp_path / "two"), scratch_url=scratch))


def test_an_index_that_gives_nothing_is_an_error(tmp_path: Path):
    crawl = small_crawl(pages=2, archives=1)
    index = write_index(tmp_path / "index", {"part-0.parquet": columnar(crawl.rows)})
    archive = write_index(tmp_path / "archive", crawl.files)
    with pytest.raises(SourceError, match=r"none of 2 rows of the index is wanted \(\{'type': 2\}\)"):
        fetched(index_source(index, str(archive), media_types=["application/pdf"]), tmp_path / "1")
    with pytest.raises(SourceError, match=r"no record could be had \(\{'rejected': 2\}\); check `archive`"):
        fetched(index_source(index, str(tmp_path / "index")), tmp_path / "2")


def test_index_files_are_named_by_the_list_that_a_crawl_publishes(tmp_path: Path):
    """Over plain HTTP nothing can be listed: the list, the index files and the archives all come from the server."""
    crawl = small_crawl()
    names = [f"cc-index/crawl=C-1/subset={subset}/part-0.gz.parquet" for subset in ("warc", "robotstxt")]
    listed = gzip.compress("".join(f"{name}\n" for name in names).encode())
    files = {**crawl.files, names[0]: columnar(crawl.rows), names[1]: b"never read", "crawl-data/C-1/index.paths.gz": listed}
    with serving_archives(files) as server:
        source = index_source(server.root, "", paths="crawl-data/C-1/index.paths.gz", include=["**/subset=warc/*.parquet"])
        assert [entry.name for entry in index_entries(source)] == names[:1]
        artifact = fetched(source, tmp_path / "raw")
        assert artifact.stats["records"] == len(crawl.rows)
        for text, why in (
            (b"../../etc/passwd", "leads out of"),
            (b"cc-index/crawl=C-2/part-0.parquet", "no file of crawl C-1"),
            (b"crawl=C-1/readme.txt", "none of which matches"),
        ):
            server.files["crawl-data/C-1/index.paths.gz"] = gzip.compress(text)
            with pytest.raises(SourceError, match=why):
                observe(source)
        server.files["crawl-data/C-1/index.paths.gz"] = gzip.compress(bytes((128 << 20) + 1), 1)
        with pytest.raises(SourceError, match="inflates to more than"):
            observe(source)
        with pytest.raises(SourceError, match=r"other\.gz can't be read"):
            observe(source.model_copy(update={"paths": "other.gz"}))


def test_a_zst_archive_with_a_dictionary_is_read_through_its_head(tmp_path: Path):
    """As the Archive Team writes them: the dictionary lies in a skippable frame before the records."""
    crawl = small_crawl(pages=8, archives=1)
    [old] = crawl.files.values()
    records = [gzip.decompress(old[row.offset : row.offset + row.length]) for row in crawl.rows]
    dictionary = zstd_train_dictionary_from_samples([record[i : i + 200] for record in records for i in range(0, 1000, 50)], 2048)
    archived, rows = io.BytesIO(), []
    writer = ZstdWriter(archived, dictionary=dictionary)
    writer.flush()
    for row, record in zip(crawl.rows, records, strict=True):
        offset = archived.tell()
        writer.write(record)
        writer.finish()
        writer.flush()
        rows.append(replace(row, archive="a.warc.zst", offset=offset, length=archived.tell() - offset))
    data = archived.getvalue()
    index = write_index(tmp_path / "index", {"part-0.parquet": columnar(rows)})
    archive = write_index(tmp_path / "archive", {"a.warc.zst": data})
    artifact = fetched(index_source(index, str(archive)), tmp_path / "raw")
    assert [gzip.decompress(member) for member in members_of(artifact)] == records


def test_progress_says_how_many_bytes_are_left(tmp_path: Path):
    crawl = small_crawl()
    index = write_index(tmp_path / "index", {"part-0.parquet": columnar(crawl.rows)})
    heard: list[tuple[int, int | None, str]] = []
    with serving_archives(crawl.files) as server:
        source = index_source(index, server.root)
        out = Writer(
            str(tmp_path / "a"), scratch_url=str(tmp_path / "s"), progress=lambda done, total, unit, **_: heard.append((done, total, unit))
        )
        raw(RawConfig(source=source, observed=observe(source)), out=out)
    done, total, unit = heard[-1]
    assert unit == "bytes"
    assert done == total == sum(end - start for _, start, end in server.requests)
