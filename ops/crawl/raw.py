"""raw: a source as it was found, kept to the byte."""

import pyarrow as pa
from pydantic import Field

from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.crawl.config import FilesSource, IndexSource, JsonlSource, PydocSource, RawConfig, WarcSource
from ops.crawl.copy_warcs import copy_warcs
from ops.crawl.crawler import CrawlOutcome, CrawlPlan, crawl
from ops.crawl.fetch import Fetcher
from ops.crawl.index.paths import index_entries
from ops.crawl.index.retrieve import Retrieved, retrieve
from ops.crawl.listing import Entry, SourceError, fingerprint, list_entries
from ops.crawl.payloads import PayloadWriter
from ops.crawl.pydoc_site import serving_pydoc
from ops.crawl.read_files import read_files
from ops.crawl.read_jsonl import read_jsonl
from ops.observe import observe, observe_entries
from ops.shards import write_table

FETCH_ERROR_SCHEMA = pa.schema([("uri", pa.string()), ("reason", pa.string()), ("detail", pa.string())])


class RawStats(Stats):
    """What was fetched. `records` are pages, files, rows or WARC files; `payload_bytes` are their bodies, uncompressed for crawls."""

    records: int
    payload_bytes: int
    rejects: int = 0  # unreadable files, bad rows
    fetch_errors: int = 0
    redirects: int = 0
    disallowed: int = 0  # links that robots.txt forbids
    left_in_frontier: int = 0
    index_rows: int = 0  # of a crawl's URL index: records + fetch_errors + index_repeated + the sum of index_left_out
    index_repeated: int = 0
    index_left_out: dict[str, int] = Field(default_factory=dict)
    fetch_errors_by_reason: dict[str, int] = Field(default_factory=dict)


@program(version="3")
def raw(config: RawConfig, out: Writer) -> RawStats:
    """Fetch one source.

    Args:
        config: the source, and the fingerprint it had when the work was planned.
        out: `warc/*` for crawls, indexes and WARC sources; `files-*.parquet` and `rejects.parquet` for files and rows;
            `fetch_errors.parquet` for crawls and indexes; what else an index gives, `ops.crawl.index.retrieve` says.

    Raises:
        SourceError: the source is missing or empty, or is not what was observed.
        CrawlError: a crawl fetched nothing.
    """
    source = config.source
    if isinstance(source, PydocSource):
        stats, found = _crawl_pydoc(source, out)
    elif isinstance(source, IndexSource):
        stats = _index_stats(retrieve(source, config.observed, index_entries(source), out))
        found = observe(source)
    else:
        stats, found = _read(source, out)
    if config.observed and found != config.observed:
        raise SourceError(
            f"{source.kind} source changed while being read: planned as {config.observed}, read as {found}; "
            "run it again, and if it keeps changing read from a snapshot of it"
        )
    return stats


def _read(source: FilesSource | WarcSource | JsonlSource, out: Writer) -> tuple[RawStats, str]:
    entries = list_entries(source)
    if isinstance(source, WarcSource):
        marks = copy_warcs(entries, out)
        stats = RawStats(records=len(entries), payload_bytes=sum(entry.size for entry in entries))
    else:
        with PayloadWriter(out) as payloads:
            marks = _read_payloads(source, entries, payloads, out)
        stats = RawStats(records=payloads.payloads + payloads.rejects, payload_bytes=payloads.payload_bytes, rejects=payloads.rejects)
    if any(entry.etag for entry in entries):
        return stats, observe_entries(source, list_entries(source))
    return stats, fingerprint((entry.name, entry.size, mark) for entry, mark in zip(entries, marks, strict=True))


def _read_payloads(source: FilesSource | JsonlSource, entries: list[Entry], payloads: PayloadWriter, out: Writer) -> list[str]:
    if isinstance(source, FilesSource):
        return read_files(source, entries, payloads, out)
    return read_jsonl(source, entries, payloads, out)


def _crawl_pydoc(source: PydocSource, out: Writer) -> tuple[RawStats, str]:
    with serving_pydoc() as address:
        fetcher = Fetcher(addresses={source.host: address}, max_body_bytes=source.max_page_bytes, timeout_s=source.timeout_s)
        try:
            outcome = crawl(_plan(source), fetcher, out)
        finally:
            fetcher.close()
    rows = [(failure.uri, failure.reason, failure.detail) for failure in outcome.failures]
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    write_table(out, "fetch_errors.parquet", pa.Table.from_arrays([pa.array(c, pa.string()) for c in columns], schema=FETCH_ERROR_SCHEMA))
    return _crawl_stats(outcome), observe(source)


def _plan(source: PydocSource) -> CrawlPlan:
    return CrawlPlan(
        seeds=tuple(f"http://{source.host}{path}" for path in source.seeds),
        instant=source.snapshot,
        max_pages=source.max_pages,
        max_warc_bytes=source.max_warc_bytes,
        delay_s=source.delay_s,
    )


def _crawl_stats(outcome: CrawlOutcome) -> RawStats:
    return RawStats(
        records=outcome.pages,
        payload_bytes=outcome.body_bytes,
        fetch_errors=len(outcome.failures),
        redirects=outcome.redirects,
        disallowed=outcome.disallowed,
        left_in_frontier=outcome.left_in_frontier,
    )


def _index_stats(retrieved: Retrieved) -> RawStats:
    return RawStats(
        records=retrieved.records,
        payload_bytes=retrieved.payload_bytes,
        fetch_errors=sum(retrieved.errors.values()),
        index_rows=retrieved.index_rows,
        index_repeated=retrieved.repeated,
        index_left_out=retrieved.left_out,
        fetch_errors_by_reason=retrieved.errors,
    )
