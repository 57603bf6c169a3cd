"""normalized: one identity per text, in shards that depend on the texts alone.

Two passes. The first caps whitespace, names every text by its hash and spills rows by shard; the second sorts one shard
at a time, so memory is a spill run or a shard, whatever the source holds.
"""

import re
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.config import NormalizeConfig
from ops.extract.documents import DOCUMENT_SCHEMA
from ops.extract.rejects import REJECT_SCHEMA, Reason
from ops.row_groups import GROUP_BYTES
from ops.shard_spill import ShardSpill
from ops.shards import read_batches, shard_name, shard_names, shard_writer, write_table

KEYED_SCHEMA = pa.schema([pa.field("id", pa.string()), *DOCUMENT_SCHEMA])
NORMALIZED_SCHEMA = KEYED_SCHEMA.append(pa.field("is_held_out", pa.bool_()))
# Equal texts are ordered by where they came from, so that the survivor does not depend on the order of arrival.
SORT_KEYS = [(name, "ascending") for name in KEYED_SCHEMA.names if name not in ("text", "page_starts")]
ID_HEX = 32
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


@program(version="3")
def normalize(config: NormalizeConfig, extracted: Artifact, out: Writer) -> NormalizeStats:
    """Give every text its id, drop blank rows and exact copies, and lay the rest out in shards sorted by id.

    Args:
        extracted: `part-*` of `DOCUMENT_SCHEMA`; its stats say `text_bytes`, by which shards are counted.
        out: `part-NNNNN-of-NNNNN.parquet` of `NORMALIZED_SCHEMA`, ids unique; `duplicates.parquet`, the copies left out;
            `rejects.parquet`, the blank rows.

    Raises:
        NormalizeError: no row has text.

    `id` is the xxh3-128 of the UTF-8 text as 32 hex digits; equal id means equal text. The bytes depend on the set of
    rows alone, not on their order or batching.
    """
    shards = max(1, extracted.stats["text_bytes"] // config.shard_bytes)
    with out.scratch_folder() as folder:
        spill = ShardSpill(folder, KEYED_SCHEMA, shards, config.spill_bytes)
        blank, whitespace_cut = _spill_rows(config, extracted, spill, out)
        if spill.rows == 0:
            raise NormalizeError(
                f"none of the {blank.num_rows} rows of {extracted.url} has text; "
                "look at the source's rejects, and at its text field if it is a jsonl source"
            )
        counts = _write_shards(config, spill, shards, out)
    write_table(out, "rejects.parquet", blank.sort_by([(name, "ascending") for name in REJECT_SCHEMA.names]))
    return NormalizeStats(rows=spill.rows + blank.num_rows, blank=blank.num_rows, whitespace_cut=whitespace_cut, shards=shards, **counts)


def _spill_rows(config: NormalizeConfig, extracted: Artifact, spill: ShardSpill, out: Writer) -> tuple[pa.Table, int]:
    """First pass. Returns the blank rows as rejects, and how many texts were cut."""
    blank: list[pa.RecordBatch] = []
    whitespace_cut = 0
    for name in shard_names(extracted):
        for batch in read_batches(extracted, name):
            is_blank = _is_blank(batch["text"])
            blank.append(_as_rejects(batch.filter(is_blank)))
            kept = batch.filter(pc.invert(is_blank))
            texts, cut = cap_whitespace(kept["text"], config.max_whitespace_run)
            whitespace_cut += cut
            if cut:
                kept = _with_shifted_pages(kept, config.max_whitespace_run)
            digests = text_digests(texts)
            spill.add(pa.record_batch([hex_ids(digests), texts, *kept.columns[1:]], schema=KEYED_SCHEMA), _shard_of(digests, spill.shards))
            out.progress(spill.rows, None, "rows named")
    return pa.Table.from_batches(blank, REJECT_SCHEMA), whitespace_cut


def _write_shards(config: NormalizeConfig, spill: ShardSpill, shards: int, out: Writer) -> dict[str, int]:
    """Second pass: sort, tell copies from survivors, write."""
    counts = dict.fromkeys(("documents", "duplicates", "held_out", "text_bytes"), 0)
    with shard_writer(out, "duplicates.parquet", NORMALIZED_SCHEMA) as write_duplicates:
        for index in range(shards):
            table = spill.read(index).sort_by(SORT_KEYS)
            table = table.append_column("is_held_out", held_out(table["id"], config.held_out_salt, config.held_out_rate))
            is_copy = _repeats(table["id"])
            documents, copies = table.filter(pc.invert(is_copy)), table.filter(is_copy)
            write_table(out, shard_name(index, shards), documents, GROUP_BYTES)
            for batch in copies.combine_chunks().to_batches():
                write_duplicates(batch)
            counts["documents"] += documents.num_rows
            counts["duplicates"] += copies.num_rows
            counts["held_out"] += pc.sum(documents["is_held_out"]).as_py() or 0
            counts["text_bytes"] += pc.sum(pc.binary_length(documents["text"])).as_py() or 0
            out.progress(index + 1, shards, "shards", documents=counts["documents"])
    return counts


def cap_whitespace(texts: pa.StringArray, longest: int) -> tuple[pa.StringArray, int]:
    """Cut every run of more than `longest` whitespace characters to its first `longest`. Returns also how many texts changed."""
    count: int = pc.sum(pc.match_substring_regex(texts, f"{WHITESPACE}{{{longest + 1}}}")).as_py() or 0
    if count == 0:
        return texts, 0
    return pc.replace_substring_regex(texts, f"({WHITESPACE}{{{longest}}}){WHITESPACE}+", r"\1"), count


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


def held_out(ids: pa.ChunkedArray, salt: str, rate: float) -> pa.BooleanArray:
    """Whether each id is held out: the xxh3-64 of salt and id, as a share of 2^64, lies below the rate."""
    prefix = salt.encode()
    hashes = [xxhash.xxh3_64_intdigest(prefix + bytes(value)) for chunk in ids.chunks for value in _byte_slices(chunk)]
    if rate >= 1:
        return pa.repeat(pa.scalar(True), len(hashes))
    return pa.array(np.array(hashes, np.uint64) < np.uint64(int(rate * 2**64)))


def _byte_slices(texts: pa.StringArray) -> list[memoryview]:
    """Every value's bytes, without making Python strings of them."""
    _, offsets_buffer, data_buffer = texts.buffers()
    if len(texts) == 0 or data_buffer is None:
        return [memoryview(b"")] * len(texts)
    offsets = np.frombuffer(offsets_buffer, np.int32, len(texts) + 1, texts.offset * 4).tolist()
    data = memoryview(data_buffer)
    return [data[start:end] for start, end in pairwise(offsets)]


def _shard_of(digests: bytes, shards: int) -> npt.NDArray[np.int64]:
    """[rows]: a shard for every id, by its first 64 bits."""
    return (np.frombuffer(digests, ">u8")[::2] % np.uint64(shards)).astype(np.int64)


def _is_blank(texts: pa.StringArray) -> pa.BooleanArray:
    return pc.or_(pc.fill_null(pc.utf8_is_space(texts), True), pc.fill_null(pc.equal(pc.binary_length(texts), 0), True))


def _as_rejects(rows: pa.RecordBatch) -> pa.RecordBatch:
    reason = pa.repeat(pa.scalar(str(Reason.EMPTY_TEXT)), rows.num_rows)
    detail = pa.repeat(pa.scalar("the text is blank"), rows.num_rows)
    return pa.record_batch([rows["source_id"], rows["warc_file"], rows["warc_offset"], reason, detail], schema=REJECT_SCHEMA)


def _repeats(ids: pa.ChunkedArray) -> pa.BooleanArray:
    """True where a sorted id equals the one before it."""
    ids = ids.combine_chunks()
    if len(ids) == 0:
        return pa.array([], pa.bool_())
    return pa.concat_arrays([pa.array([False]), pc.equal(ids[1:], ids[:-1])])
