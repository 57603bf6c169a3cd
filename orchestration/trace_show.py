"""What `seaway trace` prints. URLs and texts are other people's: nothing of them is taken for markup or for control codes."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assets.factory import Factory
from model.trace import Reading
from orchestration.errors import UntraceableError
from orchestration.trace import Seen, Trail, as_json, batch_of, trails_of_id, trails_of_url

READINGS_SHOWN = 8
VALUES_SHOWN = 3  # of a list of labels


def show_document(console: Console, factory: Factory, id: str, *, save: Path | None, in_json: bool) -> None:
    """Print the trails of a document id; `save` gets the stored bytes of the first one's record."""
    _show(console, trails_of_id(factory, id), save, in_json)


def show_url(console: Console, factory: Factory, url: str, *, save: Path | None, in_json: bool) -> None:
    """Print the trails of everything that came from a URL; `save` gets the stored bytes of the first one's record."""
    _show(console, trails_of_url(factory, url), save, in_json)


def show_step(console: Console, factory: Factory, run: str, step: int, *, in_json: bool) -> None:
    """Print what a step's batch is made of."""
    found = batch_of(factory, run, step)
    if in_json:
        console.file.write(json.dumps([vars(one) for one in found], indent=1) + "\n")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("row", "source", "document", "tokens", "bucket", "epoch"):
        table.add_column(column, justify="right" if column in ("row", "epoch") else "left", no_wrap=True)
    for one in found:
        table.add_row(*map(escape, (str(one.row), one.source, one.id, f"{one.start:,} to {one.end:,}", one.folder, str(one.epoch))))
    console.print(table)
    documents = len({(one.source, one.id) for one in found})
    console.print(f"{run}, step {step}: {documents} documents in {len({one.row for one in found})} rows", soft_wrap=True)


def _show(console: Console, trails: list[Trail], save: Path | None, in_json: bool) -> None:
    if save is not None:
        _save(trails[0], save)
    if in_json:
        console.file.write(json.dumps([as_json(trail) for trail in trails], indent=1) + "\n")
        return
    for trail in trails:
        lines = _lines(trail)
        width = max(len(name) for name, _ in lines)
        for name, value in lines:
            console.print(f"[bold]{escape(name.ljust(width))}[/bold]  {escape(visible(value))}", soft_wrap=True)
        console.print()
    if save is not None:
        console.print(f"{trails[0].record.length:,} bytes in {escape(str(save))}", soft_wrap=True)


def _save(trail: Trail, path: Path) -> None:
    try:
        with path.open("xb") as stream:
            stream.write(trail.record.stored)
    except FileExistsError:
        raise UntraceableError(f"{path} exists; name a file that doesn't") from None


def _lines(trail: Trail) -> list[tuple[str, str]]:
    document, record = trail.document, trail.record
    copy = f", a copy of the source's document {document.id}" if document.is_copy else ""
    lines = [
        ("document", f"{document.id} of {document.source}{copy}"),
        ("url", document.url),
        ("text", f"{trail.characters:,} characters of {document.media_type}, by {document.extractor}"),
        ("row", f"{document.row:,} of {document.shard} in normalized[{document.source}]"),
    ]
    if document.warc_file is None:
        lines.append(("payload", f"row {record.offset:,} of {record.file} in raw[{document.source}], {record.length:,} bytes"))
    else:
        upto = record.offset + record.length
        lines.append(
            ("record", f"bytes {record.offset:,} to {upto:,} of {record.file} in raw[{document.source}] ({record.length:,} stored)")
        )
        lines.append(("", _about(record.head, len(record.block))))
    if record.place is not None:
        place = record.place
        lines.append(("archive", f"bytes {place.offset:,} to {place.offset + place.length:,} of {place.archive}"))
    lines.append(("stored at", trail.raw.url_of(record.file)))
    if trail.fate is not None:
        lines.append(("outcome", trail.fate.outcome.name.lower().replace("_", " ")))
        lines += [("", f"{stage}: {_said(said)}") for stage, said in trail.fate.said.items() if _said(said)]
    for one in trail.seen:
        lines += _seen_lines(one)
    if trail.unfollowed:
        lines.append(("not asked", f"{', '.join(trail.unfollowed)}: their data is gone, or another version of this code wrote them"))
    return lines


def _about(head: dict[str, str], block_bytes: int) -> str:
    told = [head[name] for name in ("warc-type", "warc-date", "warc-record-id", "warc-payload-digest") if name in head]
    return ", ".join([*told, f"{block_bytes:,} bytes inflated"])


def _said(said: Any) -> str:
    """Labels that say something: flags that hold, numbers, names."""
    return ", ".join(f"{key} {_value(value)}" for key, value in said.items() if value not in (None, False, [], ""))


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list) and len(value) > VALUES_SHOWN:
        return f"{_value(value[:VALUES_SHOWN])} and {len(value) - VALUES_SHOWN} more"
    if isinstance(value, dict):
        return f"({_said(value)})"
    return ", ".join(map(_value, value)) if isinstance(value, list) else str(value)


def _seen_lines(one: Seen) -> list[tuple[str, str]]:
    place = one.place
    where = f"{place.folder}, document {place.index:,} (of {place.source}), tokens {place.start:,} to {place.end:,}"
    lines = [("store", where)]
    for run, readings in one.readings.items():
        lines.append((run, _readings(readings)))
    return lines


def _readings(readings: list[Reading]) -> str:
    if not readings:
        return "never read"
    steps = len({reading.step for reading in readings})
    shown = "; ".join(f"step {one.step} row {one.row} tokens {one.start:,} to {one.end:,}" for one in readings[:READINGS_SHOWN])
    more = f"; {len(readings) - READINGS_SHOWN} more (--json has all)" if len(readings) > READINGS_SHOWN else ""
    return f"{steps} step{'' if steps == 1 else 's'}: {shown}{more}"


def visible(text: str) -> str:
    """A text without anything that a terminal would obey: control characters and marks of writing direction become escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
