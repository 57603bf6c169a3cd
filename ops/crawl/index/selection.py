"""Which rows of an index are wanted, and why each of them is. Labels of media types disagree, so every reason is kept."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ops.crawl.config import IndexSource

DISCOVERY_SCHEMA = pa.schema(
    [
        ("url", pa.string()),
        ("archive", pa.string()),
        ("archive_offset", pa.int64()),
        ("archive_length", pa.int64()),
        ("content_digest", pa.string()),
        ("record_id", pa.string()),
        ("declared_media_type", pa.string()),
        ("detected_media_type", pa.string()),
        ("selected_by", pa.list_(pa.string())),  # of `REASONS`
    ]
)
REASONS = ("declared", "detected", "suffix")
HASHES = 1 << 64


def select(rows: pa.RecordBatch, source: IndexSource) -> tuple[pa.RecordBatch, Counter[str]]:
    """The wanted rows (`DISCOVERY_SCHEMA`), and how many others there were by reason: `status`, `truncated`, `type`, `sample`.

    Every row is judged by itself: the outcome does not depend on batches, files or their order.
    """
    left_out: Counter[str] = Counter()

    def keep(rows: pa.RecordBatch, mask: pa.Array, otherwise: str) -> pa.RecordBatch:
        kept = rows.filter(pc.fill_null(mask, False))
        left_out[otherwise] += rows.num_rows - kept.num_rows
        return kept

    # 206 is a part of a page: a success for the browser that asked for it, and no document.
    is_success = pc.and_(pc.and_(pc.greater_equal(rows["status"], 200), pc.less(rows["status"], 300)), pc.not_equal(rows["status"], 206))
    rows = keep(rows, is_success, "status")
    rows = keep(rows, pc.is_in(pc.fill_null(rows["truncated"], ""), value_set=pa.array(["", "-"])), "truncated")
    by = _reasons(rows, source)
    is_wanted = pc.or_(pc.or_(by[0], by[1]), by[2])
    by = [mask.filter(is_wanted) for mask in by]
    rows = keep(rows, is_wanted, "type")
    is_sampled = _sampled(rows["url"], source)
    by = [mask.filter(is_sampled) for mask in by]
    rows = keep(rows, is_sampled, "sample")
    columns = [rows[name] for name in DISCOVERY_SCHEMA.names[:-1]]
    return pa.record_batch([*columns, _listed(by)], schema=DISCOVERY_SCHEMA), left_out


def _reasons(rows: pa.RecordBatch, source: IndexSource) -> list[pa.BooleanArray]:
    wanted = pa.array([name.lower() for name in source.media_types], pa.string())
    labels = [pc.is_in(_bare(rows[f"{kind}_media_type"]), value_set=wanted) for kind in ("declared", "detected")]
    if not source.suffixes:
        return [*labels, pa.repeat(pa.scalar(False), rows.num_rows)]
    endings = "|".join(_escaped(suffix) for suffix in source.suffixes)
    in_path = pc.match_substring_regex(rows["url"], rf"(?i)^[a-z][a-z0-9+.-]*://[^/?#]*/[^?#]*(?:{endings})(?:[?#]|$)")
    return [*labels, in_path]


def _bare(media_types: pa.StringArray) -> pa.StringArray:
    """Without parameters, lower case; null where there is none."""
    return pc.utf8_lower(pc.utf8_trim_whitespace(pc.replace_substring_regex(media_types, ";.*", "")))


def _escaped(suffix: str) -> str:
    return "".join(char if char.isalnum() else f"\\x{{{ord(char):x}}}" for char in suffix)


def _sampled(urls: pa.StringArray, source: IndexSource) -> pa.BooleanArray:
    if source.sample_rate >= 1:
        return pa.repeat(pa.scalar(True), len(urls))
    salt = source.sample_salt.encode()
    hashes = np.fromiter((xxhash.xxh3_64_intdigest(salt + url.encode()) for url in urls.to_pylist()), np.uint64, len(urls))
    return pa.array(hashes < np.uint64(int(source.sample_rate * HASHES)))


def _listed(by: list[pa.BooleanArray]) -> pa.ListArray:
    """The names of the reasons that hold, row by row: one of eight lists, looked up by the reasons as bits."""
    lists = [[name for bit, name in enumerate(REASONS) if bits >> bit & 1] for bits in range(1 << len(REASONS))]
    bits = sum(mask.to_numpy(zero_copy_only=False).astype(np.int8) << bit for bit, mask in enumerate(by))
    return pa.array(lists, pa.list_(pa.string())).take(pa.array(bits))
