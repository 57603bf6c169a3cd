"""Every knob of the data plane on one page. Imports nothing heavy: the lineage is planned without pyarrow."""

from typing import Annotated, Literal

from pydantic import Field

from infra.artifacts.config import ProgramConfig, execution_only


MiB = 1 << 20

# --- Sources: where documents come from -------------------------------------------------------------------


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
    max_pages: int = Field(1_000, ge=1)
    max_page_bytes: int = Field(16 * MiB, ge=1)
    max_warc_bytes: int = Field(1024 * MiB, ge=1)
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
    max_file_bytes: int = Field(4 * MiB, ge=1)


class WarcSource(Source):
    """WARC and ARC files below a prefix (a folder or any fsspec URL), copied byte for byte."""

    kind: Literal["warc"] = "warc"
    root: str = execution_only()
    include: tuple[str, ...] = ("**/*.warc", "**/*.warc.gz", "**/*.arc", "**/*.arc.gz")
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
    max_line_bytes: int = Field(64 * MiB, ge=1)


SourceSpec = Annotated[PydocSource | FilesSource | WarcSource | JsonlSource, Field(discriminator="kind")]


# --- raw -> extracted -> normalized -----------------------------------------------------------------------


class RawConfig(ProgramConfig):
    """What to fetch. `observed` is `ops.observe.observe(source)`: it stands for the outside world in the recipe."""

    source: SourceSpec
    observed: str = ""


class ExtractConfig(ProgramConfig):
    """How payloads become text."""

    html: Literal["resiliparse"] = "resiliparse"
    max_payload_bytes: int = Field(16 * MiB, ge=1)  # decoded; the largest page in Common Crawl's samples is 1 MiB, books reach 10
    text_media_types: tuple[str, ...] = (  # taken as they are, after decoding
        "text/plain",
        "text/markdown",
        "text/x-rst",
        "text/x-python",
        "text/x-source",
    )
    html_media_types: tuple[str, ...] = ("text/html", "application/xhtml+xml")
    max_undecodable: float = Field(0.01, ge=0, le=1)  # share of characters that no charset could explain


class NormalizeConfig(ProgramConfig):
    """Document identity, shards and the held-out split."""

    shard_bytes: int = Field(256 * MiB, ge=1)  # UTF-8 bytes of text a shard
    max_whitespace_run: int = Field(128, ge=1, le=1000)  # characters; the longest whitespace token of the Llama tokenizer is 128
    held_out_rate: float = Field(0.001, ge=0, le=1)
    held_out_salt: str = "seaway-held-out-1"
    spill_bytes: int = execution_only(256 * MiB, ge=1)  # memory for rows on their way to a shard; never changes the result
