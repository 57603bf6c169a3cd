"""The embedded shuffle: DuckDB sorts all rows by bucket, key and order, spilling to disk, and streams them into one file a bucket.

A bucket larger than memory (a hot key) is streamed like any other.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ops.dataflow.budget import Budget
from ops.dataflow.carried import PLACES, Carried
from ops.dataflow.errors import Poison
from ops.dataflow.keyed import BUCKET, Keyed
from ops.dataflow.read import read_pieces
from ops.dataflow.shard import Piece, Shard, StageFunction, Tally
from ops.dataflow.work import Beat, Watch
from ops.shards import ROWS_PER_BATCH

ROWS_PER_SORT = 20_000_000  # ten seconds of silence
STREAMED_ROWS = 8_192  # of a sorted batch: megabytes even where texts are exchanged


def exchange(
    folder: Path,
    sources: Sequence[Shard],
    emit: StageFunction,
    keyed: Keyed,
    buckets: int,
    wanted: Collection[int],
    budget: Budget,
    threads: int,
    beat: Beat,
) -> dict[int, Piece] | list[Poison]:
    """Send every row that `emit` yields to its bucket.

    Args:
        folder: an empty one on a local disk, for three times the rows' bytes.
        wanted: the buckets still to be done; rows of others are dropped on the way.

    Returns:
        The wanted buckets that have rows, each as a local file of rows in order; or, where some source could not be
        read, what is wrong with each of these.
    """
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{budget.sort_bytes >> 20}MiB",
        "temp_directory": str(folder / "spill"),
        "threads": threads,
        "autoinstall_known_extensions": False,  # never reaches for the network
        "preserve_insertion_order": False,  # the one query states its order
    }
    path = folder / "exchange.duckdb"
    carried_schema = pa.schema([keyed.schema.field(name) for name in keyed.carried])
    with duckdb.connect(str(path), config=settings) as database, Carried(folder, carried_schema) as carried:
        poisons = _load(database, carried, sources, emit, keyed, buckets, np.array(sorted(wanted), np.int32), budget, beat)
        if poisons:
            return poisons
        pieces = _stream(database, carried, folder, keyed, budget, beat)
    path.unlink()
    return pieces


def _load(
    database: duckdb.DuckDBPyConnection,
    carried: Carried,
    sources: Sequence[Shard],
    emit: StageFunction,
    keyed: Keyed,
    buckets: int,
    wanted: NDArray[np.int32],
    budget: Budget,
    beat: Beat,
) -> list[Poison]:
    """Fill the table `rows`; every source is tried, so that all that are poisoned are known at once."""
    schema = pa.schema([(BUCKET, pa.int32()), *keyed.sorted_schema, *(PLACES if keyed.carried else ())])
    database.register("arriving", schema.empty_table())
    database.execute("CREATE TABLE rows AS FROM arriving")
    poisons = []
    for source in sources:
        watch = Watch(beat)
        read = read_pieces(source.pieces, budget.batch_bytes, ROWS_PER_BATCH)
        try:
            for batch in emit(source, watch.over(read), Tally()):
                places = keyed.buckets_of(batch, buckets)
                if len(wanted) < buckets:
                    chosen = np.isin(places, wanted)
                    batch, places = batch.filter(pa.array(chosen)), places[chosen]
                rows = _addressed(batch, places, keyed, carried, schema)
                database.register("arriving", rows)
                database.execute("INSERT INTO rows FROM arriving")
        except (OSError, duckdb.Error):
            raise  # disk and memory, not the rows
        except Exception as error:
            poisons.append(watch.poison(source, error, None))
    database.unregister("arriving")
    return poisons


def _addressed(batch: pa.RecordBatch, places: NDArray[np.int32], keyed: Keyed, carried: Carried, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with the bucket of each, as they are sorted: what is carried lies on the disk, the rows of a bucket side by side."""
    if not keyed.carried:
        return pa.RecordBatch.from_arrays([pa.array(places), *batch.columns], schema=schema)
    order = np.argsort(places, kind="stable")
    batch, places = batch.take(pa.array(order)), places[order]
    stood_for = carried.add(batch.select(list(keyed.carried)))
    light = batch.select(keyed.sorted_schema.names)
    return pa.RecordBatch.from_arrays([pa.array(places), *light.columns, *stood_for], schema=schema)


def _stream(
    database: duckdb.DuckDBPyConnection, carried: Carried, folder: Path, keyed: Keyed, budget: Budget, beat: Beat
) -> dict[int, Piece]:
    """Write the sorted rows, bucket by bucket."""
    order = ", ".join(f'"{name}" NULLS LAST' for name in keyed.sorting)
    pieces: dict[int, Piece] = {}
    for first, last in _sorts(database):
        found = database.sql(f"FROM rows WHERE {BUCKET} BETWEEN {first} AND {last} ORDER BY {BUCKET}, {order}")
        for bucket, batches in groupby(_runs(found.to_arrow_reader(STREAMED_ROWS)), key=itemgetter(0)):
            path = folder / f"{bucket:05d}.arrow"
            with pa.ipc.new_file(str(path), keyed.schema) as writer:
                for _, batch in batches:
                    for rows in carried.joined(batch, keyed.schema, budget.batch_bytes) if keyed.carried else (batch,):
                        writer.write_batch(rows.select(keyed.schema.names).cast(keyed.schema))
                    beat(0)
            pieces[bucket] = Piece(str(path))
    return pieces


def _sorts(database: duckdb.DuckDBPyConnection) -> Iterator[tuple[int, int]]:
    """Adjacent buckets, first and last, that are sorted together: a sort says nothing before it ends, so none may take long."""
    sizes = database.execute(f"SELECT {BUCKET}, count(*) FROM rows GROUP BY ALL ORDER BY ALL").fetchall()
    together: list[int] = []
    rows = 0
    for bucket, size in sizes:
        if together and rows + size > ROWS_PER_SORT:
            yield together[0], together[-1]
            together, rows = [], 0
        together.append(bucket)
        rows += size
    if together:
        yield together[0], together[-1]


def _runs(reader: pa.RecordBatchReader) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut sorted batches where the bucket changes; the bucket's column is gone."""
    for batch in reader:
        if batch.num_rows == 0:
            continue
        buckets = batch[BUCKET].to_numpy()
        rows = batch.drop_columns([BUCKET])
        cuts = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), batch.num_rows]
        for start, end in pairwise(cuts):
            yield int(buckets[start]), rows.slice(start, end - start)
