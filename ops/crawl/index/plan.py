"""Phase 2, plan: which bytes of which archive are asked for together, and which of these requests are committed together.

A plan is data, made from the discovered rows alone. It decides how often the store is asked and what a kill costs; what
comes out is the same under any plan.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infra.artifacts.manifest import canonical_json

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes [start, end) of one archive, and the discovered rows [first, last) whose records lie in them."""

    archive: str
    start: int
    end: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class FetchTask:
    """Requests whose result is committed in one piece. `key` names what is asked for, by content."""

    key: str
    spans: tuple[Span, ...]

    @property
    def stored_bytes(self) -> int:
        return sum(span.end - span.start for span in self.spans)


@dataclass(frozen=True)
class Plan:
    """Tasks in the order of the rows, and the rows that are in none of them: `overlapping` others, or `oversized`."""

    tasks: tuple[FetchTask, ...]
    overlapping: tuple[int, ...]
    oversized: tuple[int, ...]


def plan_fetch(found: pa.Table, *, gap_bytes: int, task_bytes: int, max_record_bytes: int) -> Plan:
    """Plan the requests for discovered rows, which are sorted by (archive, offset).

    Args:
        gap_bytes: neighbours in an archive are asked for together if no more lies between them.
        task_bytes: a request begins no record further than this from its start; a task takes whole requests up to it.
        max_record_bytes: rows whose record is longer, stored, are not asked for.

    Every row is in exactly one span, or in one of the two lists; spans are disjoint and cover their rows' records. Rows
    that name the same bytes (records in one gzip member) are no overlap.
    """
    offsets, lengths, archives = _columns(found)
    oversized = lengths > max_record_bytes
    overlapping = _overlaps(archives, offsets, lengths, ~oversized)
    rows = np.flatnonzero(~oversized & ~overlapping)
    spans = _spans(found, rows, archives[rows], offsets[rows], lengths[rows], gap_bytes, task_bytes)
    tasks = tuple(FetchTask(_key(found, group), tuple(group)) for group in _packed(spans, task_bytes))
    return Plan(tasks, tuple(np.flatnonzero(overlapping).tolist()), tuple(np.flatnonzero(oversized).tolist()))


def _columns(found: pa.Table) -> tuple[Ints, Ints, Ints]:
    """Offsets, lengths, and a number per archive, all ascending in the order of the rows."""
    encoded = found["archive"].combine_chunks().dictionary_encode()
    return found["archive_offset"].to_numpy(), found["archive_length"].to_numpy(), encoded.indices.to_numpy().astype(np.int64)


def _overlaps(archives: Ints, offsets: Ints, lengths: Ints, considered: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Rows that claim a byte which another row claims under another offset or length."""
    rows = np.flatnonzero(considered)
    places = np.stack([archives[rows], offsets[rows], lengths[rows]], axis=1)
    is_new = np.ones(len(rows), bool)
    is_new[1:] = (places[1:] != places[:-1]).any(axis=1)
    claimed = np.zeros(int(is_new.sum()), bool)  # by place: rows that name the same bytes stand or fall together
    holder, reach = (-1, -1), -1  # the place that reaches furthest in this archive so far, and how far
    for place, (archive, offset, length) in enumerate(places[is_new].tolist()):
        if archive == holder[0] and offset < reach:
            claimed[place] = claimed[holder[1]] = True
        if archive != holder[0] or offset + length > reach:
            holder, reach = (archive, place), offset + length
    overlapping = np.zeros(len(archives), bool)
    overlapping[rows] = claimed[np.cumsum(is_new) - 1]
    return overlapping


def _spans(found: pa.Table, rows: Ints, archives: Ints, offsets: Ints, lengths: Ints, gap_bytes: int, task_bytes: int) -> list[Span]:
    if len(rows) == 0:
        return []
    ends = offsets + lengths
    is_apart = np.ones(len(rows), bool)
    is_apart[1:] = (archives[1:] != archives[:-1]) | (offsets[1:] - ends[:-1] > gap_bytes) | (np.diff(rows) != 1)
    starts = offsets[is_apart][np.cumsum(is_apart) - 1]  # of each row's run
    part = (offsets - starts) // task_bytes  # a run that is longer than a task is cut into parts
    is_apart[1:] |= part[1:] != part[:-1]
    firsts = np.flatnonzero(is_apart)
    lasts = np.append(firsts[1:], len(rows))
    names = found["archive"].take(pa.array(rows[firsts])).to_pylist()
    return [
        Span(name, int(offsets[first]), int(ends[last - 1]), int(rows[first]), int(rows[last - 1]) + 1)
        for name, first, last in zip(names, firsts.tolist(), lasts.tolist(), strict=True)
    ]


def _packed(spans: list[Span], task_bytes: int) -> Iterator[list[Span]]:
    group: list[Span] = []
    size = 0
    for span in spans:
        if group and size + span.end - span.start > task_bytes:
            yield group
            group, size = [], 0
        group.append(span)
        size += span.end - span.start
    if group:
        yield group


def _key(found: pa.Table, spans: list[Span]) -> str:
    rows = found.slice(spans[0].first, spans[-1].last - spans[0].first)
    digest = hashlib.sha256(canonical_json([(span.archive, span.start, span.end, span.last - span.first) for span in spans]))
    digest.update(canonical_json(rows.select(["url", "archive_offset", "archive_length", "content_digest", "record_id"]).to_pydict()))
    return f"fetch-{digest.hexdigest()[:16]}"
