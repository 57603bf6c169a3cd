"""`seaway trace`: a document's way, from the bytes it was read from to the steps that read it, out of what is published."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from assets.factory import Factory
from assets.resolve import Node
from infra.artifacts.artifact import Artifact
from model.run import Run, read_run
from model.trace import ReadDocument, Reading, documents_of_step, readings_of
from ops.cache import read_ledger
from ops.trace.documents import TracedDocument, documents_with_id, documents_with_url, text_of
from ops.trace.fate import Fate, fate_of, labels_at
from ops.trace.places import Place, places_of
from ops.trace.records import LostRecordError, StoredRecord, record_of
from orchestration.errors import UntraceableError

LABELS = ("language", "quality", "contamination", "tokens")
RUN_PROGRAMS = ("train", "branch")
DUPLICATES = {"exact": "exact_duplicates", "fuzzy": "fuzzy_duplicates"}


@dataclass(frozen=True)
class PublishedRun:
    """A finished run and what it read. `name`: its asset, with `@` and the recipe's beginning if the profile means another one now."""

    name: str
    digest: str
    run: Run
    store: Artifact
    mixture: Artifact


@dataclass(frozen=True)
class Seen:
    """A place of the document's text in a store, and when each run that read this store read from it."""

    place: Place
    store: Artifact
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
    unfollowed: tuple[str, ...]  # runs that may have read it, and can't be asked


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


def batch_of(factory: Factory, name: str, step: int) -> list[ReadDocument]:
    """What a step of a run read.

    Raises:
        UntraceableError: the run is not published, or makes no such step.
    """
    runs = {run.name: run for run in (published_runs(factory)[0] if "@" in name else _current_runs(factory))}
    if name not in runs:
        known = ", ".join(runs) or "none yet"
        raise UntraceableError(f"run {name!r} is not published for profile {factory.profile.name}; choose one of {known}")
    found = runs[name]
    try:
        return list(documents_of_step(found.store, found.mixture, found.run, step))
    except ValueError as error:
        raise UntraceableError(f"{name}: {error}") from error


def published_runs(factory: Factory) -> tuple[list[PublishedRun], tuple[str, ...]]:
    """Every run below the profile's root, from storage itself: the profile's own first, then earlier ones.

    Returns:
        The runs, and the names of those that can't be followed: their data is gone, or another version of this code wrote them.
    """
    current = list(_current_runs(factory))
    known = {run.digest for run in current}
    data: dict[str, Artifact] = {}
    others: list[tuple[str, Artifact]] = []
    for asset, partition, recipe, artifact in factory.store.artifacts():
        if artifact.manifest.payload.get("program") in RUN_PROGRAMS and artifact.digest not in known:
            others.append((f"{Node(asset, partition)}@{recipe[:8]}", artifact))
        elif asset in ("store", "mixture"):
            data[artifact.digest] = artifact
    lost = []
    for name, artifact in others:
        try:
            finished = read_run(artifact)
            store, mixture = data[finished.state.data.store], data[finished.state.data.mixture]
        except (ValidationError, KeyError):
            lost.append(name)
        else:
            current.append(PublishedRun(name, artifact.digest, finished.run, store, mixture))
    return current, tuple(lost)


def _current_runs(factory: Factory) -> Iterator[PublishedRun]:
    """The published runs that the profile means now."""
    store, mixture = _published(factory, "store"), _published(factory, "mixture")
    if store is None or mixture is None:
        return
    for node in [*(Node("ladder", cell) for cell in sorted(factory.profile.ladder)), Node("hero"), Node("cooldown")]:
        artifact = _published(factory, node.asset, node.partition)
        if artifact is not None:
            yield PublishedRun(str(node), artifact.digest, read_run(artifact).run, store, mixture)


def _trails(factory: Factory, documents: list[TracedDocument]) -> Iterator[Trail]:
    runs, unfollowed = published_runs(factory)
    seen = _seen(factory, frozenset(document.id for document in documents), runs)
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
            unfollowed,
        )


def _record(raw: Artifact, document: TracedDocument) -> StoredRecord:
    try:
        return record_of(raw, document)
    except LostRecordError as error:
        raise UntraceableError(f"{error}; the artifact was damaged, check it with `seaway replay 'raw[{document.source}]'`") from error


def _fate(factory: Factory, document: TracedDocument, normalized: Artifact) -> Fate | None:
    assets = {name: name for name in LABELS} | {"quality": factory.profile.quality_scores}
    sets = {name: _published(factory, asset, document.source) for name, asset in assets.items()}
    duplicates = {kind: _published(factory, asset) for kind, asset in DUPLICATES.items()}
    known = {name: artifact for name, artifact in (sets | duplicates).items() if artifact is not None}
    if len(known) < len(sets) + len(duplicates):
        return None
    labels = {"normalized": normalized, **{name: known[name] for name in LABELS}}
    fate = fate_of(document, labels, {kind: known[kind] for kind in DUPLICATES}, factory.profile.store_config())
    cuts = _published(factory, "paragraph_duplicates") if factory.profile.repeated_paragraphs == "cut" else None
    if cuts is None:
        return fate
    return replace(fate, said={**fate.said, "cut": labels_at(cuts, f"{document.source}/{document.shard}", document.row)})


def _seen(factory: Factory, ids: frozenset[str], runs: list[PublishedRun]) -> list[Seen]:
    """Where the texts lie in the profile's store and in those of earlier runs, and when each run read from there."""
    current = _published(factory, "store")
    stores = {run.store.digest: run.store for run in runs} | ({} if current is None else {current.digest: current})
    seen = []
    for digest, store in sorted(stores.items(), key=lambda item: (current is None or item[0] != current.digest, item[0])):
        reading = [run for run in runs if run.store.digest == digest]
        seen += [
            Seen(place, store, {run.name: readings_of(place, store, run.mixture, run.run) for run in reading})
            for place in places_of(store, read_ledger(store), ids)
        ]
    return seen


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
        "unfollowed": list(trail.unfollowed),
        "seen": [
            {
                **vars(one.place),
                "store": one.store.url,
                "readings": {run: [vars(reading) for reading in found] for run, found in one.readings.items()},
            }
            for one in trail.seen
        ],
    }
