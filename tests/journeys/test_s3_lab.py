"""The whole lineage on a real S3 server, over a network that spoils exchanges: the same bytes as on a quiet disk."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.artifacts.store import ArtifactStore
from tests.infra.storage.fault_proxy import Plan, fault_proxy
from tests.infra.storage.seaweed import Seaweed, pointed_at, s3_environment, seaweed
from tests.journeys.lab import PROFILE, Lab

pytestmark = [
    pytest.mark.s3,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("SEAWAY_LONG_JOURNEYS" not in os.environ, reason="takes ten minutes on 2 cores: make journeys"),
]

PLAN = Plan(seed=2026, share=0.02)


@dataclass
class S3Lab:
    """A lab whose artifacts lie on SeaweedFS, behind a proxy with faults."""

    lab: Lab
    server: Seaweed
    root: str
    plan: Plan


@pytest.fixture
def s3_lab(lab: Lab, tmp_path: Path) -> Iterator[S3Lab]:
    text = PROFILE.read_text()
    local_root = "root: ${HOME_OF_TEST}/artifacts"
    assert local_root in text
    lab.profile = tmp_path / "s3.yaml"
    lab.profile.write_text(text.replace(local_root, "root: ${S3_ROOT}"))
    with seaweed() as server, fault_proxy(server.endpoint, PLAN) as endpoint:
        root = server.fresh_root()
        lab.extra = {**s3_environment(endpoint), "S3_ROOT": root, "SEAWAY_CACHE": str(lab.home / "cache")}
        yield S3Lab(lab, server, root, PLAN)


def test_a_lab_on_s3_over_a_faulty_network_ends_in_the_bytes_of_a_local_one(s3_lab: S3Lab, finished_lab: Lab) -> None:
    done = s3_lab.lab.run("seaway", "demo", "--profile", str(s3_lab.lab.profile), timeout_s=1500)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert sum(s3_lab.plan.happened.values()) >= 20, s3_lab.plan.happened
    assert len(s3_lab.plan.happened) >= 6, f"of many kinds: {s3_lab.plan.happened}"
    with pointed_at(s3_lab.server.environment):
        store = ArtifactStore(s3_lab.root)
        found = {f"{asset}[{partition}]/{recipe}": artifact for asset, partition, recipe, artifact in store.artifacts()}
        for artifact in found.values():
            store.verify(artifact)
    undisturbed = finished_lab.digests()
    ended = {key: artifact.digest for key, artifact in found.items()}
    assert ended.items() <= undisturbed.items(), "same recipes, same bytes"
    assert {key.split("/")[0] for key in ended} == {key.split("/")[0] for key in undisturbed}, "and every node of the lineage"
    assert not (s3_lab.lab.home / "artifacts").exists()
