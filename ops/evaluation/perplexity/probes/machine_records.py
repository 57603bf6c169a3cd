"""Records that machines write: CSV tables and logs with timestamps. Read by `csv` and `datetime`."""

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

from ops.evaluation.perplexity.slices import TextDocument, supervised

EPOCH = datetime(2021, 3, 4, 5, 6, 7, tzinfo=UTC)
LEVELS = ("INFO", "WARNING", "ERROR", "DEBUG")
EVENTS = ("accepted connection", "wrote segment", "lost lease", "compacted 3 shards", "retry, then ok", 'said "stop"')


def csv_rows(random: Random, count: int) -> Iterator[TextDocument]:
    """A table whose last rows are the target.

    Raises:
        ValueError: a row that is read back has other fields than were written.
    """
    for number in range(count):
        rows = [["id", "name", "note", "amount"]]
        first = random.randrange(1000, 9000)
        rows += [
            [str(first + index), f"unit {random.randrange(40)}", random.choice(EVENTS), f"{random.uniform(0, 500):.2f}"]
            for index in range(14)
        ]
        text = _written(rows)
        if list(csv.reader(io.StringIO(text), strict=True)) != rows:
            raise ValueError("the table does not come back as it was written")
        head = _written(rows[:-3])
        yield supervised(f"csv-{number:03d}", head, text.removeprefix(head))


def log_lines(random: Random, count: int) -> Iterator[TextDocument]:
    """A log in steps of one interval; the target is the next line's timestamp and level.

    Raises:
        ValueError: a timestamp isn't one, or isn't later than the one before by the interval.
    """
    for number in range(count):
        start, step = EPOCH + timedelta(seconds=random.randrange(10**8)), timedelta(seconds=random.choice([1, 5, 30, 60, 3600]))
        times = [(start + index * step).isoformat() for index in range(12)]
        read = [datetime.fromisoformat(time) for time in times]
        if any(later - earlier != step for earlier, later in pairwise(read)):
            raise ValueError(f"{times[0]} and its followers are not {step} apart")
        lines = [f"{time} {random.choice(LEVELS)} {random.choice(EVENTS)}\n" for time in times]
        yield supervised(f"log-{number:03d}", "".join(lines[:-1]), lines[-1][: len(times[-1])])


def _written(rows: list[list[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()
