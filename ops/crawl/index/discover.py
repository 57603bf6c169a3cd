"""Phase 1, discover: every row of the index is read once, and the wanted ones are kept, a piece per index file.

Planning and fetching work on the pieces: another gap limit or task size needs no second scan.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.artifacts.config import identity_of
from infra.artifacts.manifest import canonical_json
from infra.artifacts.writer import Progress
from infra.storage.streams import open_file
from ops.crawl.config import IndexSource
from ops.crawl.index.pieces import Piece, Pieces
from ops.crawl.index.rows import read_index
from ops.crawl.index.selection import DISCOVERY_SCHEMA, select
from ops.crawl.listing import Entry
from ops.shards import shard_writer

FOUND = "found.parquet"
IN_MEMORY = pa.schema(  # a column of strings ends at 2 GiB, some 25 million URLs; one of large strings does not
    [pa.field(field.name, pa.large_string()) if pa.types.is_string(field.type) else field for field in DISCOVERY_SCHEMA]
)
ORDER = [("archive", "ascending"), ("archive_offset", "ascending"), ("archive_length", "ascending"), ("url", "ascending")]


@dataclass(frozen=True)
class Discovery:
    """The wanted rows, sorted by place and each once (`IN_MEMORY`), and what became of the others.

    index_rows = rows found + repeated + the sum of `left_out`.
    """

    found: pa.Table
    index_rows: int
    repeated: int
    left_out: dict[str, int]


def discover(source: IndexSource, observed: str, entries: list[Entry], pieces: Pieces, progress: Progress) -> Discovery:
    """Read what is missing of the index, file by file, and collect what all of it gave.

    Memory: the wanted rows, some 300 bytes each; of the index, one batch.

    Raises:
        SourceError: a file is no index.
        StorageError: it can't be read.
    """
    parts: list[pa.Table] = []
    totals: Counter[str] = Counter()
    for done, entry in enumerate(entries):
        key = _key(source, observed, entry)
        piece = pieces.find(key) or _scan(source, entry, key, pieces)
        totals.update(piece.about)
        with piece.open(FOUND) as stream:
            parts.append(pq.read_table(stream))
        progress(done + 1, len(entries), "index files", rows=totals["rows"], found=totals["found"])
    found = pa.concat_tables(parts, promote_options="none").cast(IN_MEMORY).combine_chunks().sort_by(ORDER)
    distinct = _distinct(found)
    left_out = {name: count for name, count in sorted(totals.items()) if name not in ("rows", "found") and count}
    return Discovery(distinct, totals["rows"], found.num_rows - distinct.num_rows, left_out)


def _key(source: IndexSource, observed: str, entry: Entry) -> str:
    about = [identity_of(source), observed, entry.name, entry.size, entry.etag]
    return f"discover-{hashlib.sha256(canonical_json(about)).hexdigest()[:16]}"


def _scan(source: IndexSource, entry: Entry, key: str, pieces: Pieces) -> Piece:
    counts: Counter[str] = Counter(rows=0, found=0)
    out = pieces.begin(key)
    with open_file(entry.url) as stream, shard_writer(out, FOUND, DISCOVERY_SCHEMA) as write:
        for batch in read_index(entry.name, stream):
            wanted, left_out = select(batch.rows, source)
            write(wanted)
            counts.update(left_out)
            counts.update({"bad-row": batch.bad_rows, "rows": batch.rows.num_rows + batch.bad_rows, "found": wanted.num_rows})
    return pieces.commit(key, out, counts)


def _distinct(rows: pa.Table) -> pa.Table:
    """Sorted rows without those whose record and URL are the ones of the row before."""
    if rows.num_rows < 2:
        return rows
    same = None
    for name, _ in ORDER:
        column = rows[name].combine_chunks()
        equal = pc.equal(column[1:], column[:-1])
        same = equal if same is None else pc.and_(same, equal)
    return rows.filter(pa.concat_arrays([pa.array([True]), pc.invert(same)]))
