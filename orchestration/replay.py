"""`seaway replay`: is an artifact what its recipe says? Build it again elsewhere and compare every byte."""

import shutil
import tempfile
from pathlib import Path

from rich.console import Console

from assets.partitions import PROFILE
from assets.resolve import Node
from infra.artifacts.artifact import Artifact
from infra.artifacts.store import ArtifactStore
from infra.dispatch.dispatcher import Dispatcher
from infra.dispatch.local import LocalBackend
from orchestration.definitions import FACTORY
from orchestration.errors import ReplayDiffersError


def replay_node(console: Console, title: str) -> None:
    """Rebuild the node named `asset` or `asset[partition]` from its published inputs.

    Raises:
        FileNotFoundError: it is not published for this profile, so there is nothing to compare with.
        ReplayDiffersError: names the files that differ.
    """
    asset, _, rest = title.partition("[")
    resolved = FACTORY.resolver.resolve(Node(asset, rest.rstrip("]") or None))
    if resolved.artifact is None:
        raise FileNotFoundError(f"{title} is not published for profile {PROFILE.name}; nothing to compare with")
    scratch = Path(tempfile.mkdtemp(prefix="seaway-replay-"))
    try:
        store = ArtifactStore(str(scratch / "artifacts"))
        address = store.address(resolved.node.asset, resolved.node.partition, resolved.recipe)
        job = FACTORY.job(resolved).model_copy(update={"address": address})
        outcome = Dispatcher(store, LocalBackend(scratch / "jobs"), PROFILE.budgets).run(job, on_message=lambda message: None)
        differing = differing_files(resolved.artifact, outcome.artifact)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if differing:
        raise ReplayDiffersError(f"{title} is not reproducible: {', '.join(differing)} came out with other bytes")
    console.print(f"{title}: {len(resolved.artifact.names)} files, same bytes, digest {resolved.artifact.digest[:16]}")


def differing_files(one: Artifact, other: Artifact) -> list[str]:
    """Names of files that only one has, or that differ in content."""
    first = {entry.name: entry.sha256 for entry in one.manifest.files}
    second = {entry.name: entry.sha256 for entry in other.manifest.files}
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
