"""Where a model's data came from, read from the manifests of the artifacts it was made of."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from infra.artifacts.artifact import Artifact, Artifacts
from ops.attrition import Attrition
from ops.cache import Counters, read_ledger

NOT_STATED = "not stated"


class SourceLineage(BaseModel):
    """One source: what it is, whose terms it is under, and what became of its documents."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    kind: str
    licence: str
    domain: str
    documents: Attrition  # of the documents that reached the store builder
    tokens: Attrition
    digest: str


class ArtifactLine(BaseModel):
    """One artifact of the chain, enough to find or rebuild it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    asset: str
    program: str
    version: str
    recipe: str
    digest: str


class Lineage(BaseModel):
    """`lineage.json` of a release."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sources: tuple[SourceLineage, ...]
    total: Counters
    artifacts: tuple[ArtifactLine, ...]
    store_inputs: dict[str, Any]  # digests of everything the store was built from


def lineage_of(raw: Artifacts, store: Artifact, others: Mapping[str, Artifact], licences: Mapping[str, str]) -> Lineage:
    """Collect the lineage.

    Args:
        raw: raw artifacts by source.
        others: further artifacts of the chain by asset key.
        licences: terms by source, for sources whose own config doesn't carry them.

    Raises:
        ValueError: the store was built from other sources than `raw` holds.
    """
    ledger = read_ledger(store)
    if set(raw) != set(ledger.counters):
        raise ValueError(f"raw has sources {sorted(raw)}, the store was built from {sorted(ledger.counters)}; release them together")
    sources = tuple(
        SourceLineage(
            source=name,
            kind=str(_source_of(artifact).get("kind", NOT_STATED)),
            licence=str(licences.get(name) or _source_of(artifact).get("licence") or NOT_STATED),
            domain=ledger.sources[name],
            documents=ledger.counters[name].documents,
            tokens=ledger.counters[name].tokens,
            digest=artifact.digest,
        )
        for name, artifact in raw.items()
    )
    chain = {**{f"raw[{name}]": artifact for name, artifact in raw.items()}, "store": store, **others}
    return Lineage(
        sources=sources,
        total=ledger.total,
        artifacts=tuple(_line(asset, artifact) for asset, artifact in chain.items()),
        store_inputs=store.manifest.payload.get("inputs", {}),
    )


def _source_of(raw: Artifact) -> Mapping[str, Any]:
    source: Mapping[str, Any] = raw.manifest.payload.get("config", {}).get("source", {})
    return source


def _line(asset: str, artifact: Artifact) -> ArtifactLine:
    payload = artifact.manifest.payload
    return ArtifactLine(
        asset=asset,
        program=str(payload.get("program", NOT_STATED)),
        version=str(payload.get("version", NOT_STATED)),
        recipe=artifact.manifest.recipe,
        digest=artifact.digest,
    )
