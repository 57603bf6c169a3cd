"""From a profile and a storage root to recipes: what each node is made of, and whether it is already there.

Storage is the only truth: an input is the artifact published under the recipe that the profile asks for
now, never the last thing that somebody built.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assets.lineage import STAGES, Edge, Stage
from assets.profile import Profile
from infra.artifacts.artifact import Artifact
from infra.artifacts.config import ProgramConfig
from infra.artifacts.recipe import payload_of, recipe_of
from infra.artifacts.store import ArtifactStore
from ops.crawl.config import RawConfig
from ops.decontaminate.config import EvaluationNgramsConfig
from ops.decontaminate.evaluations import observe as observe_evaluation
from ops.observe import observe

Located = Artifact | Mapping[str, Artifact]


@dataclass(frozen=True, order=True)
class Node:
    """An asset, or one partition of it."""

    asset: str
    partition: str | None = None

    def __str__(self) -> str:
        return f"{self.asset}[{self.partition}]" if self.partition else self.asset


@dataclass(frozen=True)
class Resolved:
    """What the profile asks of a node.

    `waiting_for` names upstream nodes that are not published; then payload and recipe are unknown, since
    they hold the digests of what is upstream.
    """

    node: Node
    stage: Stage
    config: ProgramConfig
    inputs: Mapping[str, Located]
    waiting_for: tuple[Node, ...]
    artifact: Artifact | None

    @cached_property
    def payload(self) -> dict[str, Any]:
        if self.waiting_for:
            raise ValueError(f"{self.node} has no recipe before {self.waiting_for[0]} is published")
        digests = {
            name: found.digest if isinstance(found, Artifact) else {key: item.digest for key, item in found.items()}
            for name, found in self.inputs.items()
        }
        return payload_of(self.stage.program.partition(":")[2], self.stage.version, self.config, digests)

    @cached_property
    def recipe(self) -> str:
        return recipe_of(self.payload)


class Resolver:
    """Resolves nodes of one profile against one store. Published artifacts are remembered; absences are not."""

    def __init__(self, profile: Profile, store: ArtifactStore) -> None:
        self._profile = profile
        self._store = store
        self._published: dict[Node, Resolved] = {}

    def resolve(self, node: Node) -> Resolved:
        """Resolve a node and, as far as needed, all that is upstream of it."""
        return self._resolve(node, {})

    def resolve_all(self, nodes: list[Node]) -> dict[Node, Resolved]:
        """Resolve many nodes at one moment, looking each artifact up once."""
        seen: dict[Node, Resolved] = {}
        return {node: self._resolve(node, seen) for node in nodes}

    def _resolve(self, node: Node, seen: dict[Node, Resolved]) -> Resolved:
        if (known := self._published.get(node) or seen.get(node)) is not None:
            return known
        stage = STAGES[node.asset]
        inputs: dict[str, Located] = {}
        waiting: list[Node] = []
        for name, edge in sorted(stage.inputs.items()):
            upstream = {key: self._resolve(up, seen) for key, up in sources_of(edge, node).items()}
            waiting += [item.node for item in upstream.values() if item.artifact is None]
            found = {key: item.artifact for key, item in upstream.items() if item.artifact is not None}
            inputs[name] = found if edge.how == "each" else next(iter(found.values()), {})
        waiting += [up for key in stage.after if self._resolve(up := Node(key), seen).artifact is None]
        resolved = Resolved(node, stage, observed(stage.config(self._profile, node.partition)), inputs, tuple(waiting), None)
        if not waiting:
            artifact = self._store.find(node.asset, node.partition, resolved.recipe)
            resolved = Resolved(node, stage, resolved.config, inputs, (), artifact)
        seen[node] = resolved
        if resolved.artifact is not None:
            self._published[node] = resolved
        return resolved


def sources_of(edge: Edge, node: Node) -> dict[str, Node]:
    """The upstream nodes an input reads, by partition key ("" where the upstream has none)."""
    if edge.how == "chosen":
        return {"": Node(str(node.partition))}
    keys = STAGES[edge.asset].partition_keys
    if edge.how == "each":
        return {key or "": Node(edge.asset, key) for key in keys}
    return {"": Node(edge.asset, node.partition if keys != (None,) else None)}


def observed(config: ProgramConfig) -> ProgramConfig:
    """The config with fingerprints of what it reads outside the lineage, so that the recipe moves when the world does.

    Raises:
        SourceError, EvaluationError: something it names is missing; the message says what to do.
    """
    if isinstance(config, RawConfig):
        return config.model_copy(update={"observed": observe(config.source)})
    if isinstance(config, EvaluationNgramsConfig):
        sets = tuple(item.model_copy(update={"observed": observe_evaluation(item)}) for item in config.evaluations)
        return config.model_copy(update={"evaluations": sets})
    return config


def all_nodes(stages: list[Stage]) -> list[Node]:
    """Every partition of every stage, in the order of the stages."""
    return [Node(stage.key, partition) for stage in stages for partition in stage.partition_keys]
