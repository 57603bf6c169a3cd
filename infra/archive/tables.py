"""Tables: a name, typed columns, and a primary key. Tables grow by nullable columns and by nothing else."""

import base64
import re
from dataclasses import dataclass

import pyarrow as pa

from infra.archive.errors import SchemaConflictError

NAME = re.compile(r"[a-z][a-z0-9_]*")
COMMIT_COLUMN = "_commit"  # int64, made when it is asked for: the commit that added the row


@dataclass(frozen=True)
class Table:
    """A table as a writer declares it.

    Attributes:
        name: lower-case letters, digits and underscores.
        schema: its columns; names that start with an underscore belong to the archive. Columns of the key are required
            (not nullable), declared so or not. Metadata of the schema is dropped, metadata of a column is part of its type.
        key: names of the columns that identify a row: strings or integers.

    Raises:
        SchemaConflictError: such a table can't be.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise SchemaConflictError(self.name, None, "a table's name has lower-case letters, digits and underscores; choose another")
        if len(set(self.schema.names)) != len(self.schema.names):
            raise SchemaConflictError(self.name, None, f"a column is declared twice in {self.schema.names}; name each once")
        for name in self.schema.names:
            if not name or name.startswith("_"):
                raise SchemaConflictError(self.name, name, "names with an underscore in front belong to the archive; rename it")
        if not self.key or len(set(self.key)) != len(self.key):
            raise SchemaConflictError(self.name, None, f"a primary key has one column or more, each once; this one is {self.key}")
        for name in self.key:
            _require_key_column(self.name, self.schema, name)
        fields = [field.with_nullable(False) if field.name in self.key else field for field in self.schema]
        object.__setattr__(self, "schema", pa.schema(fields))
        object.__setattr__(self, "key", tuple(self.key))


def merged(current: Table, new: Table) -> Table:
    """The table that holds rows of both declarations: `current`'s columns, then those that only `new` has.

    Raises:
        SchemaConflictError: another key, a changed type, a required column dropped or added, or one that may be null all at once.
    """
    name = current.name
    if current.key != new.key:
        raise SchemaConflictError(name, None, f"its primary key is {current.key}, not {new.key}; a key never changes, use another table")
    fields = []
    for field in current.schema:
        if field.name not in new.schema.names:
            if not field.nullable:
                raise SchemaConflictError(name, field.name, "it is required and the new declaration drops it; keep it")
            fields.append(field)
            continue
        other = new.schema.field(field.name)
        if (other.type, other.metadata or {}) != (field.type, field.metadata or {}):
            raise SchemaConflictError(
                name, field.name, f"it is {_typed(field)} and was declared as {_typed(other)}; a type never changes, add a column"
            )
        if other.nullable and not field.nullable:
            raise SchemaConflictError(name, field.name, "it is required and the new declaration lets it be null; declare it not nullable")
        fields.append(field)
    for field in new.schema:
        if field.name not in current.schema.names:
            if not field.nullable:
                raise SchemaConflictError(
                    name, field.name, "a column that is added must be nullable: the rows that are there have no value"
                )
            fields.append(field)
    return Table(name, pa.schema(fields), current.key)


def conformed(table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with exactly the table's columns; nullable ones that it lacks are null.

    Raises:
        SchemaConflictError: an unknown column, another type, a required column that is missing or null in a row.
    """
    if unknown := [name for name in batch.schema.names if name not in table.schema.names]:
        raise SchemaConflictError(table.name, unknown[0], "the rows have it and the declaration does not; declare it")
    return pa.RecordBatch.from_arrays([_column(table, batch, field) for field in table.schema], schema=table.schema)


def widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch read from an older shard, with the columns of `schema`; those that came later are null."""
    arrays = []
    for field in schema:
        if field.name not in batch.schema.names:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        arrays.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def encoded(schema: pa.Schema) -> str:
    """A schema as text for a manifest: Arrow's own serialisation in base64."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def decoded(text: str) -> pa.Schema:
    """The schema behind `encoded`."""
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text)))


def _require_key_column(table: str, schema: pa.Schema, name: str) -> None:
    if name not in schema.names:
        raise SchemaConflictError(table, name, f"the primary key names it and the columns are {schema.names}; declare it")
    kind = schema.field(name).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)):
        raise SchemaConflictError(table, name, f"it is part of the primary key and {kind}; keys are strings or integers")


def _column(table: Table, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        if not field.nullable:
            raise SchemaConflictError(table.name, field.name, "it is required and the rows do not have it; give it")
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(field.name)
    if column.null_count and not field.nullable:
        row = column.is_null().to_pylist().index(True)
        raise SchemaConflictError(table.name, field.name, f"it is required and null in row {row} of the batch; give a value")
    if column.type == field.type:
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(batch.num_rows, field.type)
    raise SchemaConflictError(table.name, field.name, f"it is {field.type} and the rows have {column.type}; cast them")


def _typed(field: pa.Field) -> str:
    marks = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    return f"{field.type} {marks}" if marks else str(field.type)
