"""Which runs materialize the whole lineage: a run has one partition key, so the lineage goes in waves."""

from collections.abc import Iterable
from dataclasses import dataclass

from assets.lineage import Stage


@dataclass(frozen=True)
class Wave:
    """One run: assets that share a partition key (or have none) and whose upstream is in earlier waves or in this one."""

    partition: str | None
    assets: tuple[str, ...]


def waves(stages: Iterable[Stage]) -> list[Wave]:
    """Cut stages (upstream before downstream) into the fewest runs, greedily: the largest set that can run next."""
    remaining = list(stages)
    planned: list[Wave] = []
    while remaining:
        kinds = dict.fromkeys(stage.partitions for stage in remaining)
        chosen = max((_runnable(remaining, kind) for kind in kinds), key=len)
        if not chosen:
            raise ValueError(f"nothing can run next among {', '.join(stage.key for stage in remaining)}: the lineage goes in a circle")
        keys = tuple(stage.key for stage in chosen)
        planned += [Wave(partition, keys) for partition in chosen[0].partition_keys]
        remaining = [stage for stage in remaining if stage not in chosen]
    return planned


def _runnable(remaining: list[Stage], partitions: tuple[str, ...]) -> list[Stage]:
    """Stages with these partitions whose remaining upstream is in the same run, read partition by partition."""
    blocked = {stage.key for stage in remaining}
    chosen: list[Stage] = []
    for stage in remaining:
        if stage.partitions != partitions:
            continue
        same = {edge.asset for edge in stage.inputs.values() if edge.how == "same"}
        needs = set(stage.upstream) & blocked
        here = {other.key for other in chosen}
        if needs <= here and (needs <= same or not partitions):
            chosen.append(stage)
    return chosen
