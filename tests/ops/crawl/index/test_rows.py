"""Index files of both forms give the same rows; what names no record is counted."""

import gzip
import io
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ops.crawl.index.rows import INDEX_SCHEMA, read_index
from ops.crawl.index.selection import select
from ops.crawl.listing import SourceError
from tests.ops.crawl.index.crawls import Row, cdxj, columnar, index_source, small_crawl


def rows_of(name: str, data: bytes) -> tuple[list[dict[str, object]], int]:
    batches = list(read_index(name, io.BytesIO(data)))
    return [row for batch in batches for row in batch.rows.to_pylist()], sum(batch.bad_rows for batch in batches)


def test_parquet_and_cdxj_say_the_same():
    crawl = small_crawl()
    expected = rows_of("a.parquet", columnar(crawl.rows))
    assert expected[1] == 0
    assert len(expected[0]) == len(crawl.rows)
    assert rows_of("a.cdxj", cdxj(crawl.rows)) == expected
    halves = cdxj(crawl.rows).splitlines(keepends=True)
    members = gzip.compress(b"".join(halves[:5])) + gzip.compress(b"".join(halves[5:]))
    assert rows_of("cdx-00000.gz", members) == expected


@pytest.mark.parametrize("rows", [1, 3])
def test_the_size_of_batches_changes_neither_rows_nor_what_is_counted(rows: int, monkeypatch: pytest.MonkeyPatch):
    crawl = small_crawl()
    spoilt = cdxj(crawl.rows) + b"no json at all\n"
    expected = rows_of("a.parquet", columnar(crawl.rows)), rows_of("a.cdxj", spoilt)
    monkeypatch.setattr("ops.crawl.index.rows.BATCH_ROWS", rows)
    assert (rows_of("a.parquet", columnar(crawl.rows)), rows_of("a.cdxj", spoilt)) == expected
    assert expected[1][1] == 1


def test_a_line_that_names_no_record_is_counted():
    good = cdxj(small_crawl(pages=1).rows)
    bad = [
        b"no json at all\n",
        b'com,x)/ 2026 {"url": "http://x.com/", "offset": "1"}\n',
        b'com,x)/ 2026 {"url": "http://x.com/", "offset": "-1", "length": "5", "filename": "a"}\n',
        b'com,x)/ 2026 {"url": "http://x.com/", "offset": "1", "length": "0", "filename": "a"}\n',
        b'com,x)/ 2026 {"url": "\\ud800", "offset": "1", "length": "1", "filename": "a"}\n',
        b'com,x)/ 2026 {"url": 7, "offset": 1, "length": 1, "filename": "a"}\n',
        b"com,x)/ 2026 [1]\n",
        b"com,x)/ 2026 {\xff}\n",
        b'com,x)/ 2026 {"url": "http://x.com/", "offset": "99999999999999999999", "length": "1", "filename": "a"}\n',
    ]
    assert rows_of("a.cdxj", b"!OpenWayback-CDXJ 1.0\n" + b"".join(bad) + good) == (rows_of("a.cdxj", good)[0], len(bad))


def test_rows_of_a_table_without_a_place_are_counted():
    row = small_crawl(pages=1).rows[0]
    broken = [Row(row.url, row.archive, -1, 5), Row(row.url, row.archive, 5, 0), Row(None, row.archive, 5, 5)]  # type: ignore[arg-type]
    assert rows_of("a.parquet", columnar([*broken, row])) == (rows_of("a.parquet", columnar([row]))[0], 3)


def test_a_table_of_something_else_is_refused_with_the_columns_it_lacks():
    other = io.BytesIO()
    pq.write_table(pa.table({"url": ["http://x"], "text": ["words"]}), other)
    with pytest.raises(SourceError, match=r"part-0\.parquet lacks fetch_status, .*warc_record_offset"):
        rows_of("part-0.parquet", other.getvalue())
    with pytest.raises(SourceError, match="can't be read as Parquet"):
        rows_of("part-0.parquet", b"PAR1 and no more")
    with pytest.raises(SourceError, match="does not inflate"):
        rows_of("cdx-00000.gz", gzip.compress(cdxj(small_crawl().rows))[:-9])


def test_record_ids_are_read_as_text_and_as_sixteen_bytes():
    one = uuid.UUID(int=7)
    table = pq.read_table(io.BytesIO(columnar(small_crawl(pages=1).rows)))
    for ids in (pa.array([one.bytes], pa.binary(16)), pa.array([f"<urn:uuid:{one}>"])):
        out = io.BytesIO()
        pq.write_table(table.append_column("warc_record_id", ids), out)
        assert rows_of("a.parquet", out.getvalue())[0][0]["record_id"] == f"<urn:uuid:{one}>"


def test_the_labels_of_media_types_disagree_and_every_reason_is_kept():
    rows = [
        Row("http://x/a", "w", 0, 1, declared="text/html; charset=utf-8", detected="application/xhtml+xml"),
        Row("http://x/b", "w", 1, 1, declared="TEXT/HTML", detected="application/pdf"),
        Row("http://x/c.PDF?download=1", "w", 2, 1, declared=None, detected=None),
        Row("http://x.pdf/d", "w", 3, 1, declared="image/png", detected=None),
        Row("http://x/e", "w", 4, 1, status=206),
        Row("http://x/f", "w", 5, 1, status=404),
        Row("http://x/g", "w", 6, 1, status=None),
        Row("http://x/h", "w", 7, 1, truncated="length"),
    ]
    source = index_source("/nowhere", "/nowhere", suffixes=[".pdf"])
    [batch] = read_index("a.parquet", io.BytesIO(columnar(rows)))
    wanted, left_out = select(batch.rows, source)
    by = dict(zip(wanted["url"].to_pylist(), wanted["selected_by"].to_pylist(), strict=True))
    assert by == {"http://x/a": ["declared", "detected"], "http://x/b": ["declared"], "http://x/c.PDF?download=1": ["suffix"]}
    assert +left_out == {"status": 3, "truncated": 1, "type": 1}


def test_a_sample_is_drawn_by_the_hash_of_the_url_and_not_by_place():
    fixed = {"status": 200, "declared_media_type": "text/html", "archive": "w", "archive_length": 1}
    rows = pa.RecordBatch.from_pylist([{**fixed, "url": f"http://x/{i}", "archive_offset": i} for i in range(4000)], schema=INDEX_SCHEMA)
    source = index_source("/nowhere", "/nowhere", sample_rate=0.25)
    wanted, left_out = select(rows, source)
    assert abs(wanted.num_rows - 1000) < 140  # five standard deviations of a binomial
    assert left_out["sample"] == 4000 - wanted.num_rows
    halves = [select(rows.slice(start, 2000), source)[0]["url"].to_pylist() for start in (0, 2000)]
    assert [*halves[0], *halves[1]] == wanted["url"].to_pylist()
    other = select(rows, source.model_copy(update={"sample_salt": "another"}))[0]
    assert set(other["url"].to_pylist()) != set(wanted["url"].to_pylist())
