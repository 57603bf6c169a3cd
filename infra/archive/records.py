"""Records: JSON-like Python values to Arrow and back, without losing one.

Arrow's own conversion from Python drops unknown fields of a struct, cuts 1.5 to 1 and reads "ab" as a list; here each
is an error that names the field.

Text with an unpaired surrogate (JSON may write it as an escape) is no UTF-8, so no Parquet column can hold it. A column
declared by `text_field` holds it escaped, and says so in its metadata: the surrogate becomes the six characters of its
JSON escape, and a backslash in front of what looks like such an escape is doubled. All other text, which is nearly all
text, is stored as it is, so plain readers see it as it is.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from infra.archive.errors import MalformedRecordError

ESCAPED = {b"seaway.text": b"surrogates-escaped"}
SURROGATE = re.compile(r"(\\*)([\ud800-\udfff])")
LOOKS_ESCAPED = re.compile(r"(\\+)(?=ud[89a-f][0-9a-f]{2})")
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # JSON has no numbers for them; ProtoJSON's names


def text_field(name: str, kind: pa.DataType | None = None, *, nullable: bool = True) -> pa.Field:
    """A column whose strings (also inside lists and structs) may have unpaired surrogates, stored escaped."""
    return pa.field(name, pa.string() if kind is None else kind, nullable=nullable, metadata=ESCAPED)


def escape(text: str) -> str:
    """Any Python string as one that is UTF-8; `unescape` gives it back."""
    doubled = LOOKS_ESCAPED.sub(lambda found: found[1] * 2, text)
    return SURROGATE.sub(lambda found: f"{found[1] * 2}\\u{ord(found[2]):04x}", doubled)


def unescape(text: str) -> str:
    """The string that `escape` was given: an odd number of backslashes means a surrogate, an even one stands for half as many."""
    return re.sub(r"(\\+)u(d[89a-f][0-9a-f]{2})", _unescaped, text)


def to_batch(records: Sequence[Mapping[str, Any]], schema: pa.Schema, where: Callable[[int], str] = "record {}".format) -> pa.RecordBatch:
    """Records as a batch.

    Args:
        records: strings, numbers, booleans, None, lists and dicts; "NaN", "Infinity" and "-Infinity" may stand for floats.
        schema: strings, numbers, booleans; lists, structs and maps from strings of them.
        where: names the n-th record in an error.

    Raises:
        MalformedRecordError: a field that the schema does not have, a missing required one, or a value of another type.
    """
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for number, record in enumerate(records):
        if unknown := sorted(record.keys() - columns.keys()):
            raise MalformedRecordError(f"{where(number)}: field {unknown[0]!r} is not a column; the columns are {', '.join(schema.names)}")
        for field in schema:
            columns[field.name].append(
                _to_arrow(record.get(field.name), field, _is_escaped(field), f"{where(number)}, field {field.name!r}")
            )
    arrays = [_array(columns[field.name], field, where) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def to_records(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """A batch as records, text unescaped; `to_batch` gives it back.

    Raises:
        MalformedRecordError: a column's type has no form in records.
    """
    columns = {
        field.name: [_from_arrow(value, field.type, _is_escaped(field), f"column {field.name!r}") for value in column.to_pylist()]
        for field, column in zip(batch.schema, batch.columns, strict=True)
    }
    return [{name: values[row] for name, values in columns.items()} for row in range(batch.num_rows)]


def _is_escaped(field: pa.Field) -> bool:
    return (field.metadata or {}).items() >= ESCAPED.items()


def _array(values: list[Any], field: pa.Field, where: Callable[[int], str]) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, OverflowError):
        for number, value in enumerate(values):
            try:
                pa.array([value], field.type)
            except (pa.ArrowInvalid, OverflowError) as error:
                raise MalformedRecordError(f"{where(number)}, field {field.name!r}: {error}; correct the value") from error
        raise


def _to_arrow(value: Any, field: pa.Field, escaped: bool, where: str) -> Any:
    kind = field.type
    if value is None:
        if not field.nullable:
            raise MalformedRecordError(f"{where}: it is required and missing or null; give a value")
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _stored_text(value, escaped, where)
    if pa.types.is_boolean(kind):
        return _of(bool, value, where, kind)
    if pa.types.is_integer(kind):
        return _of(int, value, where, kind)
    if pa.types.is_floating(kind):
        return _stored_float(value, where, kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = _of(list, list(value) if isinstance(value, tuple) else value, where, kind)
        return [_to_arrow(item, kind.value_field, escaped, f"{where}, item {number}") for number, item in enumerate(items)]
    if pa.types.is_struct(kind):
        given = _of(dict, value, where, kind)
        fields = {kind.field(index).name: kind.field(index) for index in range(kind.num_fields)}
        if unknown := sorted(given.keys() - fields.keys()):
            raise MalformedRecordError(f"{where}: it has no field {unknown[0]!r}; its fields are {', '.join(fields)}")
        return {name: _to_arrow(given.get(name), one, escaped, f"{where}.{name}") for name, one in fields.items()}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        given = _of(dict, value, where, kind)
        return [
            (_stored_text(key, escaped, f"{where}, key {key!a}"), _to_arrow(one, kind.item_field, escaped, f"{where}[{key!a}]"))
            for key, one in given.items()
        ]
    raise MalformedRecordError(f"{where}: columns of type {kind} have no form in records; append them as Arrow")


def _from_arrow(value: Any, kind: pa.DataType, escaped: bool, where: str) -> Any:
    if value is None or pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return value
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return unescape(value) if escaped else value
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_from_arrow(item, kind.value_type, escaped, where) for item in value]
    if pa.types.is_struct(kind):
        return {
            kind.field(index).name: _from_arrow(value[kind.field(index).name], kind.field(index).type, escaped, where)
            for index in range(kind.num_fields)
        }
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {unescape(key) if escaped else key: _from_arrow(one, kind.item_type, escaped, where) for key, one in value}
    raise MalformedRecordError(f"{where}: columns of type {kind} have no form in records; read them as Arrow")


def _of(wanted: type, value: Any, where: str, kind: pa.DataType) -> Any:
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise MalformedRecordError(f"{where}: it should be {kind} and is {value!a:.80}; correct the value")
    return value


def _stored_text(value: Any, escaped: bool, where: str) -> str:
    text: str = _of(str, value, where, pa.string())
    if escaped:
        return escape(text)
    if found := SURROGATE.search(text):
        raise MalformedRecordError(
            f"{where}: it has the unpaired surrogate U+{ord(found[2]):04X}, which is no UTF-8; declare the column by text_field"
        )
    return text


def _stored_float(value: Any, where: str, kind: pa.DataType) -> float:
    if isinstance(value, str) and value in NOT_FINITE:
        return NOT_FINITE[value]
    number: float = _of(float, float(value) if type(value) is int and _is_exact(value) else value, where, kind)
    return number


def _is_exact(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _unescaped(found: re.Match[str]) -> str:
    half, surrogate = divmod(len(found[1]), 2)
    return "\\" * half + (chr(int(found[2], 16)) if surrogate else f"u{found[2]}")
