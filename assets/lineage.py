"""The lineage as data: which program makes each asset, and from what. Read by the planner and the dispatcher."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from assets.profile import Pool, Profile
from infra.artifacts.config import ProgramConfig

ConfigOf = Callable[[Profile, str | None], ProgramConfig]


@dataclass(frozen=True)
class Edge:
    """An input: which asset, and which of its partitions.

    `same` takes the partition that is being built (or the only one), `each` all of them, sorted by key;
    `chosen` takes the unpartitioned asset that the partition key names.
    """

    asset: str
    how: Literal["same", "each", "chosen"]


def same(asset: str) -> Edge:
    """The partition that is being built, or the only one there is."""
    return Edge(asset, "same")


def each(asset: str) -> Edge:
    """Every partition, by key."""
    return Edge(asset, "each")


CHOSEN = Edge("", "chosen")
"""The asset that the partition key names."""


@dataclass(frozen=True)
class Stage:
    """One node of the lineage. `on_demand`: no job but `deepen` builds it.

    `after` names assets that must be published before this one is built without being inputs of it: a
    prediction precedes its run, and must not retrain it when it changes.
    """

    key: str
    program: str
    version: str
    inputs: Mapping[str, Edge]
    after: tuple[str, ...]
    partitions: tuple[str, ...]
    config: ConfigOf
    pool: Pool
    on_demand: bool = False

    @property
    def partition_keys(self) -> tuple[str | None, ...]:
        """Keys in sorted order; one None for a stage without partitions."""
        return tuple(sorted(self.partitions)) or (None,)

    @property
    def upstream(self) -> tuple[str, ...]:
        """Keys of all assets this one needs, without repeats."""
        inputs = [key for edge in self.inputs.values() for key in (self.partitions if edge.how == "chosen" else (edge.asset,))]
        return tuple(dict.fromkeys([*inputs, *self.after]))


STAGES: dict[str, Stage] = {}
"""Every stage by asset key. Filled by `@stage` as the asset modules are imported."""


def in_order() -> list[Stage]:
    """All stages, upstream before downstream; ties in alphabetical order.

    Raises:
        ValueError: a stage names an asset that doesn't exist, reads the same partition of one that is partitioned
            otherwise, or the stages form a circle.
    """
    if unknown := sorted({key for stage in STAGES.values() for key in stage.upstream} - set(STAGES)):
        raise ValueError(f"the lineage names assets that don't exist: {', '.join(unknown)}")
    for stage in STAGES.values():
        for name, edge in stage.inputs.items():
            upstream = STAGES[edge.asset].partitions if edge.how == "same" else ()
            if upstream and sorted(upstream) != sorted(stage.partitions):
                raise ValueError(f"{stage.key}: input {name} is same({edge.asset!r}), which has other partitions; use each({edge.asset!r})")
    waiting, ordered = dict(sorted(STAGES.items())), dict[str, Stage]()
    while waiting:
        ready = [key for key, stage in waiting.items() if all(up in ordered for up in stage.upstream)]
        if not ready:
            raise ValueError(f"the lineage goes in a circle through {', '.join(waiting)}")
        ordered.update((key, waiting.pop(key)) for key in ready)
    return list(ordered.values())
