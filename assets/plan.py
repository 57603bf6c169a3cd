"""What would run, and why: the profile's recipes against what is published. Decides nothing and changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from assets.history import Past, history
from assets.lineage import in_order
from assets.resolve import Node, Resolved, Resolver, all_nodes
from infra.artifacts.config import identity_of
from infra.artifacts.manifest import Manifest
from infra.artifacts.store import ArtifactStore


@dataclass(frozen=True)
class Step:
    """One node of a plan.

    `build` runs for sure. `perhaps` waits for upstream that is to be built: if that comes out in the same
    bytes, nothing runs here (early cut-off). `on demand` is not published, and only the job `deepen` would build it.
    """

    node: Node
    verdict: Literal["published", "build", "perhaps", "on demand"]
    reasons: tuple[str, ...]
    resolved: Resolved
    last_seconds: float | None = None


def make_plan(resolver: Resolver, store: ArtifactStore) -> list[Step]:
    """A step for every node of the lineage, upstream before downstream."""
    resolved = resolver.resolve_all(all_nodes(in_order()))
    past = history(store, (node for node, item in resolved.items() if item.artifact is None))
    return [_step(item, past.get(item.node)) for item in resolved.values()]


def _step(resolved: Resolved, past: Past | None) -> Step:
    if resolved.artifact is not None:
        return Step(resolved.node, "published", (), resolved)
    seconds = past.seconds if past else None
    verdict, reasons = _verdict(resolved, past)
    return Step(resolved.node, "on demand" if resolved.stage.on_demand else verdict, reasons, resolved, seconds)


def _verdict(resolved: Resolved, past: Past | None) -> tuple[Literal["build", "perhaps"], tuple[str, ...]]:
    """What a job that has this node in it would do, and why."""
    if not resolved.waiting_for:
        return "build", ("never built",) if past is None else differences(past.artifact.manifest, resolved.payload)
    names = ", ".join(map(str, dict.fromkeys(resolved.waiting_for)))
    changed = own_differences(past.artifact.manifest, resolved) if past else ()
    return "build" if changed or not past else "perhaps", (*changed, f"waits for {names}")


def own_differences(before: Manifest, resolved: Resolved) -> tuple[str, ...]:
    """How program, version and config differ, while the inputs are not known yet."""
    own = {"program": resolved.stage.program.partition(":")[2], "version": resolved.stage.version, "config": identity_of(resolved.config)}
    return differences(before, {**own, "inputs": before.payload["inputs"]})


def differences(before: Manifest, payload: Mapping[str, Any]) -> tuple[str, ...]:
    """Field by field, how a payload differs from the one that an artifact was built from."""
    old, new = flatten(before.payload), flatten(payload)
    return tuple(
        f"{name}: {_short(old[name]) if name in old else 'absent'} -> {_short(new[name]) if name in new else 'absent'}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name, _ABSENT) != new.get(name, _ABSENT)
    )


_ABSENT = object()


def flatten(value: Any, name: str = "") -> dict[str, Any]:
    """Nested mappings and lists as one level of dotted names."""
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [(str(index), item) for index, item in enumerate(value)]
    else:
        return {name: value}
    flat: dict[str, Any] = {}
    for key, item in items:
        flat |= flatten(item, f"{name}.{key}" if name else key)
    return flat


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 16 or not text.isalnum() else f"{text[:12]}..."
