"""`seaway replay`: is an artifact what its recipe says? Build it again elsewhere and compare every byte."""

import uuid
from collections.abc import Callable

from rich.console import Console
from rich.markup import escape

from assets.partitions import PROFILE
from assets.resolve import Resolved
from infra.artifacts.artifact import Artifact
from infra.artifacts.store import ArtifactStore
from infra.dispatch.messages import Message
from infra.storage.objects import remove_tree
from orchestration.definitions import FACTORY
from orchestration.errors import ReplayDiffersError
from orchestration.naming import node_named


def replay_node(console: Console, title: str) -> None:
    """Rebuild the node named `asset` or `asset[partition]` from its published inputs.

    Raises:
        UnknownNodeError: the lineage has no such node.
        FileNotFoundError: it is not published for this profile, so there is nothing to compare with.
        ReplayDiffersError: names the files that differ.
    """
    resolved = FACTORY.resolver.resolve(node_named(title))
    if resolved.artifact is None:
        raise FileNotFoundError(f"{title} is not published for profile {PROFILE.name}; nothing to compare with")
    scratch = f"{PROFILE.storage.root}/.replay-{uuid.uuid4().hex}"  # where the engine's hosts can write, and no discovery looks
    try:
        with console.status(escape(title)) as status:
            rebuilt = _rebuilt(resolved, scratch, lambda message: status.update(escape(f"{title}: {message.text}")))
        differing = differing_files(resolved.artifact, rebuilt)
    finally:
        remove_tree(scratch)
    if differing:
        raise ReplayDiffersError(f"{title} is not reproducible: {', '.join(differing)} came out with other bytes")
    console.print(escape(f"{title}: {len(resolved.artifact.names)} files, same bytes, digest {resolved.artifact.digest[:16]}"))


def _rebuilt(resolved: Resolved, scratch: str, on_message: Callable[[Message], None]) -> Artifact:
    """Build a node in a folder that is about to be removed, so its job must not outlive this call."""
    store = ArtifactStore(scratch)
    address = store.address(resolved.node.asset, resolved.node.partition, resolved.recipe)
    job = FACTORY.job(resolved).model_copy(update={"address": address})
    dispatcher = FACTORY.dispatcher_of(job.asset, store)
    try:
        return dispatcher.run(job, on_message=on_message).artifact
    except KeyboardInterrupt:
        dispatcher.cancel(job)
        raise


def differing_files(one: Artifact, other: Artifact) -> list[str]:
    """Names of files that only one has, or that differ in content."""
    first = {entry.name: entry.sha256 for entry in one.manifest.files}
    second = {entry.name: entry.sha256 for entry in other.manifest.files}
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
