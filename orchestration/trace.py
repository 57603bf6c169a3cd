"""`seaway trace`: a document's way, from the bytes it was read from to the steps that read it, out of what is published."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assets.factory import Factory
from infra.artifacts.artifact import Artifact
from model.run import Run, read_run
from model.trace import ReadDocument, Reading, documents_of_step, readings_of
from ops.cache import Ledger, read_ledger
from ops.trace.documents import TracedDocument, documents_with_id, documents_with_url, text_of
from ops.trace.fate import Fate, fate_of
from ops.trace.places import Place, places_of
from ops.trace.records import LostRecordError, StoredRecord, record_of
from orchestration.errors import UntraceableError

LABELS = ("language", "quality", "contamination")
DUPLICATES = {"exact": "exact_duplicates", "fuzzy": "fuzzy_duplicates"}


@dataclass(frozen=True)
class Seen:
    """A place of the document's text in the store, and when each run read from it."""

    place: Place
    readings: Mapping[str, list[Reading]]


@dataclass(frozen=True)
class Trail:
    """Everything known of one document. `fate` is None for copies within a source, and before the labels are published."""

    document: TracedDocument
    characters: int
    record: StoredRecord
    raw: Artifact
    fate: Fate | None
    seen: list[Seen]


def trails_of_id(factory: Factory, id: str) -> list[Trail]:
    """The trails of every document and copy with an id: its text, from wherever it came.

    Raises:
        UntraceableError: no source has it.
    """
    found = [document for source, normalized in _sources(factory) for document in documents_with_id(source, normalized, frozenset({id}))]
    if not found:
        raise UntraceableError(
            f"no source of profile {factory.profile.name} has a document {id}; ids are 32 hex digits, as in `normalized`"
        )
    return list(_trails(factory, found))


def trails_of_url(factory: Factory, url: str) -> list[Trail]:
    """The trails of every document and copy that came from a URL.

    Raises:
        UntraceableError: no source has one.
    """
    found = [document for source, normalized in _sources(factory) for document in documents_with_url(source, normalized, url)]
    if not found:
        raise UntraceableError(
            f"no document of profile {factory.profile.name} came from {url}; URLs are exact, and what was rejected is in `extracted`"
        )
    return list(_trails(factory, found))


def batch_of(factory: Factory, run: str, step: int) -> list[ReadDocument]:
    """What a step of a run read.

    Raises:
        UntraceableError: the run is not published, or makes no such step.
    """
    runs = dict(_runs(factory))
    if run not in runs:
        raise UntraceableError(
            f"run {run!r} is not published for profile {factory.profile.name}; choose one of {', '.join(runs) or 'none yet'}"
        )
    store, mixture = _published(factory, "store"), _published(factory, "mixture")
    assert store is not None
    assert mixture is not None
    try:
        return list(documents_of_step(store, mixture, runs[run], step))
    except ValueError as error:
        raise UntraceableError(f"{run}: {error}") from error


def _trails(factory: Factory, documents: list[TracedDocument]) -> Iterator[Trail]:
    seen = _seen(factory, frozenset(document.id for document in documents))
    for document in documents:
        raw, normalized = _published(factory, "raw", document.source), _published(factory, "normalized", document.source)
        assert raw is not None
        assert normalized is not None
        yield Trail(
            document,
            len(text_of(normalized, document)),
            _record(raw, document),
            raw,
            None if document.is_copy else _fate(factory, document, normalized),
            [one for one in seen if one.place.id == document.id],
        )


def _record(raw: Artifact, document: TracedDocument) -> StoredRecord:
    try:
        return record_of(raw, document)
    except LostRecordError as error:
        raise UntraceableError(f"{error}; the artifact was damaged, check it with `seaway replay 'raw[{document.source}]'`") from error


def _fate(factory: Factory, document: TracedDocument, normalized: Artifact) -> Fate | None:
    sets = {name: _published(factory, name, document.source) for name in LABELS}
    duplicates = {kind: _published(factory, asset) for kind, asset in DUPLICATES.items()}
    known = {name: artifact for name, artifact in (sets | duplicates).items() if artifact is not None}
    if len(known) < len(sets) + len(duplicates):
        return None
    labels = {"normalized": normalized, **{name: known[name] for name in LABELS}}
    return fate_of(document, labels, {kind: known[kind] for kind in DUPLICATES}, factory.profile.store_config())


def _seen(factory: Factory, ids: frozenset[str]) -> list[Seen]:
    store, mixture = _published(factory, "store"), _published(factory, "mixture")
    if store is None:
        return []
    ledger: Ledger = read_ledger(store)
    runs: list[tuple[str, Run]] = [] if mixture is None else list(_runs(factory))
    return [
        Seen(place, {} if mixture is None else {name: readings_of(place, store, mixture, run) for name, run in runs})
        for place in places_of(store, ledger, ids)
    ]


def _runs(factory: Factory) -> Iterator[tuple[str, Run]]:
    """The published runs that read the profile's store and mixture, by the name that `--run` takes."""
    store, mixture = _published(factory, "store"), _published(factory, "mixture")
    if store is None or mixture is None:
        return
    cells = [(f"ladder[{cell}]", "ladder", cell) for cell in sorted(factory.profile.ladder)]
    for name, asset, partition in [*cells, ("hero", "hero", None), ("cooldown", "cooldown", None)]:
        artifact = _published(factory, asset, partition)
        if artifact is not None:
            yield name, read_run(artifact).run


def _sources(factory: Factory) -> Iterator[tuple[str, Artifact]]:
    for source in sorted(factory.profile.sources):
        normalized = _published(factory, "normalized", source)
        if normalized is not None:
            yield source, normalized


def _published(factory: Factory, asset: str, partition: str | None = None) -> Artifact | None:
    return factory.resolve(asset, partition).artifact


def as_json(trail: Trail) -> dict[str, Any]:
    """A trail as plain values; the stored bytes are left out."""
    document, record = trail.document, trail.record
    return {
        "document": vars(document) | {"characters": trail.characters},
        "record": {
            "artifact": trail.raw.url,
            "url": trail.raw.url_of(record.file),
            "file": record.file,
            "offset": record.offset,
            "length": record.length,
            "head": record.head,
            "block_bytes": len(record.block),
            "archive": None if record.place is None else vars(record.place),
        },
        "outcome": None if trail.fate is None else trail.fate.outcome.name.lower(),
        "said": None if trail.fate is None else {stage: dict(said) for stage, said in trail.fate.said.items()},
        "seen": [
            {**vars(one.place), "readings": {run: [vars(reading) for reading in found] for run, found in one.readings.items()}}
            for one in trail.seen
        ],
    }
