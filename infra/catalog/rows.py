"""From storage to rows. Recording and rebuilding both come through here, so they can't disagree."""

from collections.abc import Iterator, Mapping
from typing import Any

from infra.artifacts.artifact import Artifact
from infra.artifacts.journal import Decision, Observation
from infra.artifacts.lease import AttemptRecord, attempts
from infra.artifacts.provenance import Provenance
from infra.artifacts.store import ArtifactStore
from infra.catalog.tables import ArtifactRow, AttemptRow, DecisionRow, FileRow, InputRow, ObservationRow, Table


def rows_of_address(store: ArtifactStore, asset: str, partition: str | None, recipe: str) -> list[Table]:
    """Everything storage holds at one address."""
    address = store.address(asset, partition, recipe)
    rows: list[Table] = [_attempt_row(address, asset, partition, recipe, record) for record in attempts(address)]
    artifact = store.find(asset, partition, recipe)
    if artifact is not None:
        rows.append(_artifact_row(asset, partition, artifact, store.provenance(artifact)))
        rows += [FileRow(url=address, name=entry.name, size_bytes=entry.size, sha256=entry.sha256) for entry in artifact.manifest.files]
        rows += [InputRow(url=address, name=name, partition=key, digest=digest) for name, key, digest in _edges(artifact.manifest.payload)]
    return rows


def rows_of_entry(entry: Observation | Decision) -> Table:
    """One entry of the journal."""
    values = entry.model_dump(exclude={"kind"})
    return ObservationRow(**values) if isinstance(entry, Observation) else DecisionRow(**values)


def _artifact_row(asset: str, partition: str | None, artifact: Artifact, provenance: Provenance | None) -> ArtifactRow:
    manifest = artifact.manifest
    return ArtifactRow(
        url=artifact.url,
        asset=asset,
        partition=partition,
        recipe=manifest.recipe,
        digest=manifest.digest,
        program=manifest.payload.get("program"),
        version=manifest.payload.get("version"),
        payload=manifest.payload,
        stats=manifest.stats,
        directory=manifest.directory,
        file_count=len(manifest.files),
        size_bytes=sum(entry.size for entry in manifest.files),
        captured_at=provenance.captured_at if provenance else None,
        code_commit=provenance.code.commit if provenance else None,
        user=provenance.environment.user if provenance else None,
        host=provenance.environment.host if provenance else None,
    )


def _attempt_row(address: str, asset: str, partition: str | None, recipe: str, record: AttemptRecord) -> AttemptRow:
    return AttemptRow(
        url=address,
        token=record.token,
        asset=asset,
        partition=partition,
        recipe=recipe,
        uid=record.uid,
        extra=record.extra,
        ended=record.ended,
        detail=record.detail,
    )


def _edges(payload: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, found in payload.get("inputs", {}).items():
        for key, digest in ({"": found} if isinstance(found, str) else found).items():
            yield name, key, digest
