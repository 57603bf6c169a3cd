"""normalized: one identity per text, in shards that depend on the texts alone.

Every row is named by the hash of its text once its whitespace is capped, and all rows of a name go to one shard, in a stated
order: the first is the document, the others are its copies.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attributes import document_count
from ops.config import NormalizeConfig
from ops.dataflow.flow import Dataflow, Done
from ops.dataflow.keyed import Keyed
from ops.dataflow.read import read_pieces
from ops.dataflow.shard import Shard, Tally, whole_shards
from ops.dataflow.work import Output
from ops.extract.documents import DOCUMENT_SCHEMA
from ops.extract.rejects import REJECT_SCHEMA, Reason
from ops.row_groups import GROUP_BYTES
from ops.shards import ROWS_PER_BATCH, shard_name, shard_names, shard_writer, write_table

KEYED_SCHEMA = pa.schema([pa.field("id", pa.string()), *DOCUMENT_SCHEMA])
NORMALIZED_SCHEMA = KEYED_SCHEMA.append(pa.field("is_held_out", pa.bool_()))
CARRIED = ("text", "page_starts")
PAGES, FILE, ROW = "_pages", "_file", "_row"  # apart from what the engines add: `_bucket`, `_source`, `_sent`, `_at`, `_bytes`
NAMED = Keyed(
    pa.schema(
        [
            ("_key", pa.uint64()),  # the first half of the id's digest; 0 for a blank row
            *KEYED_SCHEMA,  # a blank row's id is empty
            ("_is_cut", pa.bool_()),
            (PAGES, pa.uint64()),  # hash of page_starts
            (FILE, pa.int32()),
            (ROW, pa.int64()),
        ]
    ),
    "_key",
    # Equal texts are ordered by where they came from, so that the survivor does not depend on the order of arrival; the last
    # two tell rows apart that are equal in everything.
    (*(name for name in KEYED_SCHEMA.names if name not in CARRIED), PAGES, FILE, ROW),
    CARRIED,
)
BLANK = ""
IS_ASIDE = "_is_aside"
ID_HEX = 32
ASIDE_BYTES = 16 << 20  # of copies at a time
# What str.isspace() says is whitespace: the 29 characters of Unicode's White_Space and the four separators of ASCII.
WHITESPACE = r"[\t\n\v\f\r \x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"


class NormalizeError(ValueError):
    """The source has no text at all."""


class NormalizeStats(Stats):
    """rows = documents + duplicates + blank."""

    rows: int
    documents: int
    duplicates: int
    blank: int
    held_out: int
    whitespace_cut: int  # rows in which a run of whitespace was cut
    text_bytes: int  # UTF-8, of the documents
    shards: int


@program(version="4")
def normalize(config: NormalizeConfig, extracted: Artifact, out: Writer) -> NormalizeStats:
    """Give every text its id, drop blank rows and exact copies, and lay the rest out in shards sorted by id.

    Args:
        extracted: `part-*` of `DOCUMENT_SCHEMA`; its stats say `text_bytes`, by which shards are counted.
        out: `part-NNNNN-of-NNNNN.parquet` of `NORMALIZED_SCHEMA`, ids unique; `duplicates.parquet`, the copies left out;
            `rejects.parquet`, the blank rows.

    Raises:
        NormalizeError: no row has text.
        PoisonedShardsError: names the shards that can't be read or written.

    `id` is the xxh3-128 of the UTF-8 text as 32 hex digits; equal id means equal text. The bytes depend on the set of
    rows alone, not on their order or batching, nor on where and how they are worked on.
    """
    shards = max(1, extracted.stats["text_bytes"] // config.shard_bytes)
    flow = Dataflow(out, config.execution, document_count(extracted))
    sources = whole_shards(extracted, shard_names(extracted), DOCUMENT_SCHEMA.names)
    names = [shard_name(index, shards) for index in range(shards)]
    output = Output(NORMALIZED_SCHEMA, group_bytes=GROUP_BYTES, aside=IS_ASIDE)
    done = flow.by_key("documents", sources, NameRows(config.max_whitespace_run), NAMED, names, LayOut(config), output)
    tally = done.tally
    if not done.rows:
        raise NormalizeError(
            f"none of the {tally['blank']} rows of {extracted.url} has text; "
            "look at the source's rejects, and at its text field if it is a jsonl source"
        )
    flow.publish(done)
    _write_aside(done, out)
    return NormalizeStats(
        rows=done.rows + tally["duplicates"] + tally["blank"],
        documents=done.rows,
        duplicates=tally["duplicates"],
        blank=tally["blank"],
        held_out=tally["held_out"],
        whitespace_cut=tally["whitespace_cut"],
        text_bytes=tally["text_bytes"],
        shards=shards,
    )


@dataclass(frozen=True)
class NameRows:
    """Record batches of `DOCUMENT_SCHEMA` -> the rows of `NAMED`, their whitespace capped."""

    max_whitespace_run: int

    def __call__(self, source: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        first = 0
        for batch in batches:
            yield self._named(batch, source.index, first)
            first += batch.num_rows

    def _named(self, rows: pa.RecordBatch, source: int, first: int) -> pa.RecordBatch:
        texts = cap_whitespace(rows["text"], self.max_whitespace_run)
        is_cut = pc.fill_null(pc.not_equal(pc.binary_length(texts), pc.binary_length(rows["text"])), False)
        if pc.any(is_cut).as_py():
            rows = _with_shifted_pages(rows, self.max_whitespace_run)
        is_blank = _is_blank(texts)
        digests = text_digests(texts)
        keys = pc.if_else(is_blank, pa.scalar(0, pa.uint64()), pa.array(np.frombuffer(digests, ">u8")[::2].astype(np.uint64)))
        ids = pc.if_else(is_blank, BLANK, hex_ids(digests))
        places = [pa.repeat(pa.scalar(source, pa.int32()), len(ids)), pa.array(np.arange(first, first + len(ids)))]
        pages = page_hashes(rows["page_starts"])
        return pa.record_batch([keys, ids, texts, *rows.columns[1:], is_cut, pages, *places], schema=NAMED.schema)


@dataclass(frozen=True)
class LayOut:
    """The rows of a shard in order -> `NORMALIZED_SCHEMA`, with copies and blank rows set aside."""

    config: NormalizeConfig

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        last: str | None = None
        for batch in batches:
            ids = batch["id"]
            is_blank = pc.equal(ids, BLANK)
            is_copy = pc.and_not(_repeats(ids, last), is_blank)
            is_aside = pc.or_(is_blank, is_copy)
            is_held_out = held_out(ids, self.config.held_out_salt, self.config.held_out_rate)
            is_document = pc.invert(is_aside)
            tally["blank"] += is_blank.true_count
            tally["duplicates"] += is_copy.true_count
            tally["held_out"] += pc.and_(is_document, is_held_out).true_count
            tally["whitespace_cut"] += pc.and_not(batch["_is_cut"], is_blank).true_count
            tally["text_bytes"] += pc.sum(pc.binary_length(batch["text"].filter(is_document))).as_py() or 0
            last = ids[-1].as_py()
            columns = batch.select(KEYED_SCHEMA.names).columns
            yield pa.record_batch([*columns, is_held_out, is_aside], names=[*NORMALIZED_SCHEMA.names, IS_ASIDE])


def _write_aside(done: Done, out: Writer) -> None:
    """Copies as they lie, blank rows as rejects."""
    blank: list[pa.RecordBatch] = []
    with shard_writer(out, "duplicates.parquet", NORMALIZED_SCHEMA) as write:
        for batch in read_pieces(done.asides(), ASIDE_BYTES, ROWS_PER_BATCH):
            is_blank = pc.equal(batch["id"], BLANK)
            blank.append(_as_rejects(batch.filter(is_blank)))
            write(batch.filter(pc.invert(is_blank)))
    rejects = pa.Table.from_batches(blank, REJECT_SCHEMA)
    write_table(out, "rejects.parquet", rejects.sort_by([(name, "ascending") for name in REJECT_SCHEMA.names]))


def cap_whitespace(texts: pa.StringArray, longest: int) -> pa.StringArray:
    """Cut every run of more than `longest` whitespace characters to its first `longest`."""
    if not pc.any(pc.match_substring_regex(texts, f"{WHITESPACE}{{{longest + 1}}}")).as_py():
        return texts
    return pc.replace_substring_regex(texts, f"({WHITESPACE}{{{longest}}}){WHITESPACE}+", r"\1")


def shifted_starts(text: str, starts: list[int], longest: int) -> list[int]:
    """Where pages begin in the text that `cap_whitespace` leaves of `text`."""
    cuts = [(match.start() + longest, match.end()) for match in re.finditer(rf"\s{{{longest + 1},}}", text)]
    return [start - sum(min(end, start) - begin for begin, end in cuts if begin < start) for start in starts]


def _with_shifted_pages(rows: pa.RecordBatch, longest: int) -> pa.RecordBatch:
    column = rows.schema.get_field_index("page_starts")
    if rows.column(column).null_count == rows.num_rows:
        return rows
    pages = [
        None if starts is None else shifted_starts(text, starts, longest)
        for text, starts in zip(rows["text"].to_pylist(), rows.column(column).to_pylist(), strict=True)
    ]
    return rows.set_column(column, rows.schema.field(column), pa.array(pages, rows.schema.field(column).type))


def text_digests(texts: pa.StringArray) -> bytes:
    """xxh3-128 of every text's UTF-8, 16 bytes each, big-endian, one behind the other."""
    return b"".join(xxhash.xxh3_128_digest(value) for value in _byte_slices(texts))


def hex_ids(digests: bytes) -> pa.StringArray:
    """Digests as ids of 32 hex digits; one call for all."""
    count = len(digests) // (ID_HEX // 2)
    offsets = np.arange(count + 1, dtype=np.int32) * ID_HEX
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(digests.hex().encode()))


def held_out(ids: pa.StringArray, salt: str, rate: float) -> pa.BooleanArray:
    """Whether each id is held out: the xxh3-64 of salt and id, as a share of 2^64, lies below the rate."""
    if rate >= 1:
        return pa.repeat(pa.scalar(True), len(ids))
    prefix = salt.encode()
    hashes = [xxhash.xxh3_64_intdigest(prefix + bytes(value)) for value in _byte_slices(ids)]
    return pa.array(np.array(hashes, np.uint64) < np.uint64(int(rate * 2**64)))


def page_hashes(page_starts: pa.ListArray) -> pa.UInt64Array:
    """xxh3-64 of every document's page starts; 0 for a document without pages."""
    if page_starts.null_count == len(page_starts):
        return pa.repeat(pa.scalar(0, pa.uint64()), len(page_starts))
    hashes = [0 if starts is None else xxhash.xxh3_64_intdigest(np.array(starts, "<i4").tobytes()) for starts in page_starts.to_pylist()]
    return pa.array(hashes, pa.uint64())


def _byte_slices(texts: pa.StringArray) -> list[memoryview]:
    """Every value's bytes, without making Python strings of them."""
    _, offsets_buffer, data_buffer = texts.buffers()
    if len(texts) == 0 or data_buffer is None:
        return [memoryview(b"")] * len(texts)
    offsets = np.frombuffer(offsets_buffer, np.int32, len(texts) + 1, texts.offset * 4).tolist()
    data = memoryview(data_buffer)
    return [data[start:end] for start, end in pairwise(offsets)]


def _is_blank(texts: pa.StringArray) -> pa.BooleanArray:
    return pc.or_(pc.fill_null(pc.utf8_is_space(texts), True), pc.fill_null(pc.equal(pc.binary_length(texts), 0), True))


def _as_rejects(rows: pa.RecordBatch) -> pa.RecordBatch:
    reason = pa.repeat(pa.scalar(str(Reason.EMPTY_TEXT)), rows.num_rows)
    detail = pa.repeat(pa.scalar("the text is blank"), rows.num_rows)
    return pa.record_batch([rows["source_id"], rows["warc_file"], rows["warc_offset"], reason, detail], schema=REJECT_SCHEMA)


def _repeats(ids: pa.StringArray, last: str | None) -> pa.BooleanArray:
    """True where a sorted id equals the one before it, which is `last` for the first."""
    return pa.concat_arrays([pa.array([ids[0].as_py() == last]), pc.equal(ids[1:], ids[:-1])])
