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
ESCAPE = re.compile(r"(\\+)u(d[89a-f][0-9a-f]{2})")
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # JSON has no numbers for them; ProtoJSON's names


Convert = Callable[[Any], Any]


def text_field(name: str, kind: pa.DataType | None = None, *, nullable: bool = True) -> pa.Field:
    """A column whose strings (also inside lists and structs) may have unpaired surrogates, stored escaped."""
    return pa.field(name, pa.string() if kind is None else kind, nullable=nullable, metadata=ESCAPED)


def escape(text: str) -> str:
    """Any Python string as one that is UTF-8; `unescape` gives it back."""
    if "\\ud" in text:
        text = LOOKS_ESCAPED.sub(lambda found: found[1] * 2, text)
    if _is_utf8(text):
        return text
    return SURROGATE.sub(lambda found: f"{found[1] * 2}\\u{ord(found[2]):04x}", text)


def unescape(text: str) -> str:
    """The string that `escape` was given: an odd number of backslashes means a surrogate, an even one stands for half as many."""
    return ESCAPE.sub(_unescaped, text) if "\\ud" in text else text


def to_batch(records: Sequence[Mapping[str, Any]], schema: pa.Schema, where: Callable[[int], str] = "record {}".format) -> pa.RecordBatch:
    """Records as a batch.

    Args:
        records: strings, numbers, booleans, None, lists and dicts; "NaN", "Infinity" and "-Infinity" may stand for floats.
        schema: strings, numbers, booleans; lists, structs and maps from strings of them.
        where: names the n-th record in an error.

    Raises:
        MalformedRecordError: a field that the schema does not have, a missing required one, or a value of another type.
    """
    known = set(schema.names)
    for number, record in enumerate(records):
        if not record.keys() <= known:
            unknown = sorted(record.keys() - known)[0]
            raise MalformedRecordError(f"{where(number)}: field {unknown!r} is not a column; the columns are {', '.join(schema.names)}")
    return pa.RecordBatch.from_arrays([_array(records, field, where) for field in schema], schema=schema)


def to_records(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """A batch as records, text unescaped; `to_batch` gives it back.

    Raises:
        MalformedRecordError: a column's type has no form in records.
    """
    columns = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        convert = _from_arrow(field.type, _is_escaped(field), field.name)
        columns[field.name] = [None if value is None else convert(value) for value in column.to_pylist()]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _is_escaped(field: pa.Field) -> bool:
    return (field.metadata or {}).items() >= ESCAPED.items()


class _UnfitError(Exception):
    """A value that does not fit; `path` grows from inside out."""

    def __init__(self, detail: str, path: str = "") -> None:
        self.detail, self.path = detail, path

    def inside(self, path: str) -> "_UnfitError":
        return _UnfitError(self.detail, f"{path}{self.path}")


def _array(records: Sequence[Mapping[str, Any]], field: pa.Field, where: Callable[[int], str]) -> pa.Array:
    convert = _to_arrow(field, _is_escaped(field), field.name)
    values = []
    for number, record in enumerate(records):
        try:
            values.append(convert(record.get(field.name)))
        except _UnfitError as error:
            raise MalformedRecordError(f"{where(number)}, field {field.name!r}{error.path}: {error.detail}") from None
    try:
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, OverflowError):
        for number, value in enumerate(values):
            try:
                pa.array([value], field.type)
            except (pa.ArrowInvalid, OverflowError) as error:
                raise MalformedRecordError(f"{where(number)}, field {field.name!r}: {error}; correct the value") from error
        raise


def _to_arrow(field: pa.Field, escaped: bool, column: str) -> Convert:
    """What turns a Python value (or None) into one that Arrow takes as it is; made once a column."""
    convert = _value_to_arrow(field.type, escaped, column)
    if field.nullable:
        return lambda value: None if value is None else convert(value)

    def required(value: Any) -> Any:
        if value is None:
            raise _UnfitError("it is required and missing or null; give a value")
        return convert(value)

    return required


def _value_to_arrow(kind: pa.DataType, escaped: bool, column: str) -> Convert:
    if _is_text(kind):
        return _escaped_text if escaped else _plain_text
    if pa.types.is_boolean(kind):
        return lambda value: _of(bool, value, kind)
    if pa.types.is_integer(kind):
        return lambda value: _of(int, value, kind)
    if pa.types.is_floating(kind):
        return lambda value: value if type(value) is float else _other_float(value, kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_to_arrow(kind, _to_arrow(kind.value_field, escaped, column))
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return _struct_to_arrow(kind, {one.name: _to_arrow(one, escaped, column) for one in fields})
    if pa.types.is_map(kind) and _is_text(kind.key_type):
        return _map_to_arrow(kind, _value_to_arrow(kind.key_type, escaped, column), _to_arrow(kind.item_field, escaped, column))
    raise MalformedRecordError(f"column {column!r}: columns of type {kind} have no form in records; append them as Arrow")


def _list_to_arrow(kind: pa.DataType, convert: Convert) -> Convert:
    def to_list(value: Any) -> list[Any]:
        items = []
        for number, item in enumerate(value if isinstance(value, tuple) else _of(list, value, kind)):
            try:
                items.append(convert(item))
            except _UnfitError as error:
                raise error.inside(f", item {number}") from None
        return items

    return to_list


def _struct_to_arrow(kind: pa.DataType, fields: dict[str, Convert]) -> Convert:
    def to_struct(value: Any) -> dict[str, Any]:
        given = _of(dict, value, kind)
        if not given.keys() <= fields.keys():
            raise _UnfitError(f"it has no field {sorted(given.keys() - fields.keys())[0]!r}; its fields are {', '.join(fields)}")
        found = {}
        for name, convert in fields.items():
            try:
                found[name] = convert(given.get(name))
            except _UnfitError as error:
                raise error.inside(f".{name}") from None
        return found

    return to_struct


def _map_to_arrow(kind: pa.DataType, key_of: Convert, convert: Convert) -> Convert:
    def to_pairs(value: Any) -> list[tuple[str, Any]]:
        pairs = []
        for key, one in _of(dict, value, kind).items():
            try:
                pairs.append((key_of(key), convert(one)))
            except _UnfitError as error:
                raise error.inside(f"[{key!a}]") from None
        return pairs

    return to_pairs


def _from_arrow(kind: pa.DataType, escaped: bool, column: str) -> Convert:
    """What turns a value of `to_pylist`, not None, into a record's."""
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind) or (_is_text(kind) and not escaped):
        return lambda value: value
    if _is_text(kind):
        return unescape
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item_of = _from_arrow(kind.value_type, escaped, column)
        return lambda value: [None if one is None else item_of(one) for one in value]
    if pa.types.is_struct(kind):
        fields = {kind.field(index).name: _from_arrow(kind.field(index).type, escaped, column) for index in range(kind.num_fields)}
        return lambda value: {name: None if value[name] is None else convert(value[name]) for name, convert in fields.items()}
    if pa.types.is_map(kind) and _is_text(kind.key_type):
        key_of, one_of = _from_arrow(kind.key_type, escaped, column), _from_arrow(kind.item_type, escaped, column)
        return lambda value: {key_of(key): None if one is None else one_of(one) for key, one in value}
    raise MalformedRecordError(f"column {column!r}: columns of type {kind} have no form in records; read them as Arrow")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _of(wanted: type, value: Any, kind: object) -> Any:
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise _UnfitError(f"it should be {kind} and is {value!a:.80}; correct the value")
    return value


def _escaped_text(value: Any) -> str:
    return escape(_of(str, value, "string"))


def _plain_text(value: Any) -> str:
    text: str = _of(str, value, "string")
    if _is_utf8(text):
        return text
    found = SURROGATE.search(text)
    assert found is not None  # nothing else can't be encoded
    raise _UnfitError(f"it has the unpaired surrogate U+{ord(found[2]):04X}, which is no UTF-8; declare the column by text_field")


def _other_float(value: Any, kind: pa.DataType) -> float:
    if isinstance(value, str) and value in NOT_FINITE:
        return NOT_FINITE[value]
    number: float = _of(float, float(value) if type(value) is int and _is_exact(value) else value, kind)
    return number


def _is_utf8(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _is_exact(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _unescaped(found: re.Match[str]) -> str:
    half, surrogate = divmod(len(found[1]), 2)
    return "\\" * half + (chr(int(found[2], 16)) if surrogate else f"u{found[2]}")
