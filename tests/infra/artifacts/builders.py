"""Attempts at artifacts, as a dispatcher and its job would make them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from infra.artifacts.artifact import Artifact
from infra.artifacts.config import ProgramConfig
from infra.artifacts.lease import Lease, attempts, claim
from infra.artifacts.provenance import Code, Environment, Provenance
from infra.artifacts.recipe import payload_of, recipe_of
from infra.artifacts.store import ArtifactStore
from infra.artifacts.writer import Writer

FILES = {"part-00000-of-00002.parquet": b"first rows", "part-00001-of-00002.parquet": b"more rows", "train/empty.bin": b""}


class AnyConfig(ProgramConfig):
    """A config that makes one recipe a `seed`."""

    seed: int = 0


PAYLOAD = payload_of("tests:anything", "1", AnyConfig(), {})
RECIPE = recipe_of(PAYLOAD)


def new_uid() -> str:
    return uuid4().hex[:16]


def provenance_by(user: str = "ada") -> Provenance:
    return Provenance(
        captured_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        code=Code(commit="c" * 40),
        environment=Environment(user=user, host="here", python="3.12.0", platform="any", packages={"numpy": "2"}),
        config={"seed": 0},
    )


def begin(store: ArtifactStore, address: str, files: Mapping[str, bytes] | None = None) -> tuple[Lease, Writer]:
    """Claim the next attempt and write its files."""
    known = attempts(address)
    lease = claim(address, uid=new_uid(), after=known[-1].token if known else 0)
    out = store.writer(address, lease.uid)
    for name, content in (FILES if files is None else files).items():
        with out.open(name) as stream:
            stream.write(content)
    return lease, out


def publish(
    store: ArtifactStore, address: str, lease: Lease, out: Writer, payload: Mapping[str, Any] = PAYLOAD, user: str = "ada"
) -> Artifact:
    return store.publish(
        address, out, recipe=recipe_of(payload), payload=payload, stats={"rows": 2}, lease=lease, provenance=provenance_by(user)
    )


def published(
    store: ArtifactStore,
    asset: str,
    partition: str | None = None,
    *,
    seed: int = 0,
    files: Mapping[str, bytes] | None = None,
    inputs: Mapping[str, str | Mapping[str, str]] | None = None,
) -> Artifact:
    """A whole artifact, from claim to publication."""
    payload = payload_of(f"tests:{asset}", "1", AnyConfig(seed=seed), inputs or {})
    address = store.address(asset, partition, recipe_of(payload))
    lease, out = begin(store, address, {"data.bin": f"{asset} {partition} {seed}".encode()} if files is None else files)
    artifact = publish(store, address, lease, out, payload)
    lease.end("published")
    return artifact
