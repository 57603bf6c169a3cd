"""What was built before: the newest artifact of each node, and how long it took. For people; decides nothing."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from assets.resolve import Node
from infra.artifacts.artifact import Artifact
from infra.artifacts.lease import attempts
from infra.artifacts.store import ArtifactStore
from infra.dispatch.endings import End

BEFORE_EVERYTHING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Past:
    """The newest published artifact of a node. `seconds` is the wall time of the attempt that published it, if recorded."""

    artifact: Artifact
    captured_at: datetime
    seconds: float | None


def history(store: ArtifactStore, nodes: Iterable[Node]) -> dict[Node, Past]:
    """The newest artifact of each node, from storage itself."""
    wanted = set(nodes)
    newest: dict[Node, Past] = {}
    for asset, partition, _, artifact in store.artifacts():
        node = Node(asset, partition)
        if node not in wanted:
            continue
        provenance = store.provenance(artifact)
        captured_at = provenance.captured_at if provenance else BEFORE_EVERYTHING
        if node not in newest or newest[node].captured_at < captured_at:
            newest[node] = Past(artifact, captured_at, _seconds(artifact))
    return newest


def _seconds(artifact: Artifact) -> float | None:
    uid = artifact.manifest.directory.removeprefix("attempt-")
    ends = [End.of_record(record.detail) for record in attempts(artifact.url) if record.uid == uid and isinstance(record.detail, dict)]
    return ends[-1].observations.get("wall_s") if ends else None
