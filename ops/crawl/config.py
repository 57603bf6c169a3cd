"""Where documents come from: every kind of source. Imports nothing heavy."""

from typing import Annotated, Literal

from pydantic import Field

from infra.artifacts.config import ProgramConfig, execution_only
from ops.units import MiB


class Source(ProgramConfig):
    """What every kind of source says about itself.

    `root`s are never identity: what lies there is, by the fingerprint in `RawConfig.observed`.
    """

    domain: str = execution_only(pattern=r"^[a-z][a-z0-9_]*$")  # the store's bucket key, so an identifier
    licence: str = execution_only(min_length=1)  # as the publisher states it; printed on the model card


class PydocSource(Source):
    """A live crawl of the documentation server that Python ships, on loopback.

    Every WARC-Date is `snapshot`, so a second crawl of the same Python gives the same bytes; `snapshot` also
    is the way to ask for a new crawl.
    """

    kind: Literal["pydoc"] = "pydoc"
    snapshot: str = Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")  # an instant in UTC
    host: str = "pydoc.localhost"  # a name of RFC 6761: never leaves the machine; the port is not part of any URL
    seeds: tuple[str, ...] = ("/index.html", "/topics.html", "/keywords.html")
    max_pages: int = Field(default=1_000, ge=1)
    max_page_bytes: int = Field(default=16 * MiB, ge=1)
    max_warc_bytes: int = Field(default=1024 * MiB, ge=1)
    delay_s: float = execution_only(0.0, ge=0)  # our own server on our own machine needs no mercy
    timeout_s: float = execution_only(60.0, gt=0)


class FilesSource(Source):
    """Text files below a folder of this machine.

    `root` may start with `${stdlib}`, `${site-packages}` or `${repository}`. URIs are `{label}:{relative path}`, so
    they say nothing about the machine. `.gz` files are inflated.
    """

    kind: Literal["files"] = "files"
    label: str = Field(pattern=r"^[a-z][a-z0-9_-]*$")
    root: str = execution_only()
    include: tuple[str, ...] = ("**/*",)
    exclude: tuple[str, ...] = ()
    max_file_bytes: int = Field(default=4 * MiB, ge=1)


class WarcSource(Source):
    """WARC and ARC files below a prefix (a folder or any fsspec URL), copied byte for byte."""

    kind: Literal["warc"] = "warc"
    root: str = execution_only()
    include: tuple[str, ...] = ("**/*.warc", "**/*.warc.gz", "**/*.warc.zst", "**/*.arc", "**/*.arc.gz")
    exclude: tuple[str, ...] = ()


class JsonlSource(Source):
    """Rows with a text field in JSON Lines files (plain, .gz or .zst) below a prefix.

    `uri_field` names the row's own identity (a URL or an id); rows without it are named by file and line.
    """

    kind: Literal["jsonl"] = "jsonl"
    label: str = Field(pattern=r"^[a-z][a-z0-9_-]*$")
    root: str = execution_only()
    include: tuple[str, ...] = ("**/*.jsonl", "**/*.jsonl.gz", "**/*.jsonl.zst")
    exclude: tuple[str, ...] = ()
    text_field: str = "text"
    uri_field: str = "id"
    max_line_bytes: int = Field(default=64 * MiB, ge=1)


class IndexSource(Source):
    """The pages of a published crawl that its URL index names, fetched record by record out of its archives.

    `root` holds the index: Parquet with Common Crawl's columns, or CDXJ. Where a store can't be listed (plain HTTP),
    `paths` names the list of index files below `root` that the crawl publishes. `archive` is what the index's file names
    are relative to. Which pages are wanted is the content's business and identity; how they are asked for is not: any
    gap, task size and number of connections gives the same bytes.
    """

    kind: Literal["index"] = "index"
    crawl: str = Field(min_length=1)  # as its publisher names it: CC-MAIN-2024-22
    root: str = execution_only()
    paths: str = execution_only("")  # such as crawl-data/CC-MAIN-2024-22/cc-index-table.paths.gz; empty: `root` is listed
    include: tuple[str, ...] = ("**/*.parquet", "**/*.cdxj", "**/*.cdxj.gz", "**/cdx-*.gz")
    exclude: tuple[str, ...] = ()
    archive: str = execution_only("")  # empty: the same as `root`
    media_types: tuple[str, ...] = ("text/html", "application/xhtml+xml")  # as the server declared, or as the crawler detected
    suffixes: tuple[str, ...] = ()  # of the URL's path, such as .pdf; labels of both kinds are often wrong
    sample_rate: float = Field(1.0, gt=0, le=1)  # of the URLs, by their hash: lists are sorted by date or host
    sample_salt: str = "seaway-index-1"
    max_record_bytes: int = Field(64 * MiB, ge=1)  # as stored
    max_payload_bytes: int = Field(64 * MiB, ge=1)  # inflated
    warc_bytes: int = Field(1024 * MiB, ge=1)  # our own files are closed once they hold so much
    gap_bytes: int = execution_only(1 * MiB, ge=0)  # what a request may read for nothing to save another request
    task_bytes: int = execution_only(256 * MiB, ge=1)  # committed together: what a kill may cost, times `connections`
    connections: int = execution_only(8, ge=1)
    connect_timeout_s: float = execution_only(30.0, gt=0)
    read_timeout_s: float = execution_only(300.0, gt=0)
    max_stalls: int = execution_only(8, ge=1)  # reads in a row that give no byte, before a range is given up


SourceSpec = Annotated[PydocSource | FilesSource | WarcSource | IndexSource | JsonlSource, Field(discriminator="kind")]


class RawConfig(ProgramConfig):
    """What to fetch. `observed` is `ops.observe.observe(source)`: it stands for the outside world in the recipe."""

    source: SourceSpec
    observed: str = ""
