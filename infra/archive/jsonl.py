"""JSON lines in and out. A record ends at LF and nowhere else.

U+2028, U+2029, U+0085, VT and FF are text: splitters that take them for line ends (`str.splitlines`, some text modes) cut
records in two. So lines are split as bytes here; and what is written is ASCII, so that nobody can split it wrongly.
"""

import io
import json
import math
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import IO, Any

import pyarrow as pa

from infra.archive.errors import MalformedRecordError
from infra.archive.records import to_batch, to_records

ROWS_PER_BATCH = 1_024  # Python values of a batch are held at once


def read_jsonl(stream: IO[bytes], schema: pa.Schema, *, name: str = "stream", rows: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
    """Read records, a batch at a time. Lines of white space are skipped.

    Args:
        stream: bytes, UTF-8.
        name: of the file, for errors.

    Raises:
        MalformedRecordError: names file, line and field.
    """
    lines = enumerate(io.BufferedReader(stream) if isinstance(stream, io.RawIOBase) else stream, start=1)
    records = ((number, _parsed(line, f"{name}, line {number}")) for number, line in lines if line.strip())
    while chunk := list(islice(records, rows)):
        numbers = [number for number, _ in chunk]
        yield to_batch([record for _, record in chunk], schema, partial(_line, name, numbers))


def write_jsonl(batches: Iterable[pa.RecordBatch], stream: IO[bytes]) -> int:
    """Write every row as a line; how many there were.

    Numbers that JSON does not have become "NaN", "Infinity" and "-Infinity"; `read_jsonl` takes them back.
    """
    count = 0
    for batch in batches:
        for record in to_records(batch):
            stream.write(json.dumps(_plain(record), ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n")
            count += 1
    return count


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line.decode(), strict=False)  # not strict: a raw VT or FF inside a string is text, too
    except (ValueError, RecursionError) as error:
        raise MalformedRecordError(f"{where}: it is no JSON ({error}); records end at LF alone, was it cut?") from error
    if not isinstance(record, dict):
        raise MalformedRecordError(f"{where}: it is {type(record).__name__}, not an object; write one object a line")
    return record


def _line(name: str, numbers: list[int], index: int) -> str:
    return f"{name}, line {numbers[index]}"


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value
