"""Pages of a table by its key: each page is the smallest rows after the last one's key, so rows that are added move no page."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from infra.archive.records import to_records
from infra.archive.snapshot import Snapshot

Key = Sequence[str | int]
Wanted = Callable[[pa.RecordBatch], pa.Array]
"""Which rows of a batch to consider, as booleans; null is no."""


def page_of(
    snapshot: Snapshot,
    table: str,
    columns: Sequence[str],
    *,
    after: Key | None,
    limit: int,
    wanted: Wanted,
    judged_by: Sequence[str],
) -> tuple[list[dict[str, Any]], bool]:
    """The first rows after a key, in the order of the key, and whether there are more.

    Only the key and what `wanted` looks at are read of the whole table; memory is a page and a batch.

    Args:
        columns: of the rows that are returned; the key's are added.
        judged_by: columns that `wanted` needs.

    Raises:
        ValueError: `after` is no key of this table.
    """
    key = snapshot.key(table)
    _require_key(snapshot, table, key, after)
    least: pa.Table | None = None
    for batch in snapshot.batches(table, list(dict.fromkeys([*key, *judged_by]))):
        mask = wanted(batch)
        if after is not None:
            mask = pc.and_kleene(mask, _is_after(batch, key, after))
        found = pa.Table.from_batches([batch.filter(mask).select(key)])
        joined = found if least is None else pa.concat_tables([least, found])
        least = joined.take(pc.sort_indices(joined, sort_keys=[(name, "ascending") for name in key])[: limit + 1])
    keys = [] if least is None else [tuple(row.values()) for row in least.to_pylist()]
    rows = rows_of(snapshot, table, columns, keys[:limit])
    return rows, len(keys) > limit


def rows_of(snapshot: Snapshot, table: str, columns: Sequence[str], keys: Sequence[Key]) -> list[dict[str, Any]]:
    """The rows that have these keys, in their order; those that are not there are left out.

    Raises:
        ValueError: something is no key of this table.
    """
    key = snapshot.key(table)
    for one in keys:
        _require_key(snapshot, table, key, one)
    wanted, found = {tuple(one) for one in keys}, dict[Key, dict[str, Any]]()
    if not wanted:
        return []
    first = pa.array(sorted({one[0] for one in wanted}, key=str), snapshot.schema(table).field(key[0]).type)
    for batch in snapshot.batches(table, list(dict.fromkeys([*key, *columns]))):
        likely = batch.filter(pc.is_in(batch.column(key[0]), value_set=first))
        identities = zip(*(likely.column(name).to_pylist() for name in key), strict=True)
        places = [place for place, identity in enumerate(identities) if identity in wanted]
        for row in to_records(likely.take(pa.array(places, pa.int64()))):
            found[tuple(row[name] for name in key)] = row
        if len(found) == len(wanted):
            break
    return [found[tuple(one)] for one in keys if tuple(one) in found]


def _is_after(batch: pa.RecordBatch, key: Sequence[str], after: Key) -> pa.Array:
    """Whether rows come after a key, column by column."""
    name, value = key[0], after[0]
    scalar = pa.scalar(value, batch.schema.field(name).type)
    greater = pc.greater(batch.column(name), scalar)
    if len(key) == 1:
        return greater
    return pc.or_(greater, pc.and_(pc.equal(batch.column(name), scalar), _is_after(batch, key[1:], after[1:])))


def _require_key(snapshot: Snapshot, table: str, key: Sequence[str], given: Key | None) -> None:
    if given is None:
        return
    kinds = [int if pa.types.is_integer(snapshot.schema(table).field(name).type) else str for name in key]
    if len(given) != len(key) or any(not isinstance(part, kind) for part, kind in zip(given, kinds, strict=True)):
        raise ValueError(f"{list(given)!r} is no key of table {table!r}; its columns are {', '.join(key)}")
