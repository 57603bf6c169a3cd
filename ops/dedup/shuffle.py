"""The embedded shuffle: a DuckDB database in a scratch folder, which sorts and groups beyond memory by spilling."""

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from infra.artifacts.writer import Writer


@contextmanager
def shuffle_database(out: Writer, memory_bytes: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """A private database that is gone, with its file, when the block ends.

    Args:
        out: whose scratch space holds it.
        memory_bytes: DuckDB's own limit; what is larger goes to that folder.
    """
    with out.scratch_folder() as folder:
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory_bytes // (1 << 20)}MiB",
            "temp_directory": str(folder / "spill"),
            "autoinstall_known_extensions": False,  # never reaches for the network
            "preserve_insertion_order": False,  # every query here states its order
        }
        connection = duckdb.connect(str(folder / "shuffle.duckdb"), config=settings)
        try:
            yield connection
        finally:
            connection.close()


def insert(database: duckdb.DuckDBPyConnection, table: str, rows: pa.RecordBatch | pa.Table) -> None:
    """Append Arrow rows whose columns stand in the table's order."""
    database.register("inserted_rows", rows)
    database.execute(f"INSERT INTO {table} SELECT * FROM inserted_rows")
    database.unregister("inserted_rows")
