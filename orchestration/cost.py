"""What a node would cost, before it runs: training FLOPs, bytes to read, and the seconds it took last time."""

from assets.resolve import Resolved
from infra.artifacts.artifact import Artifact
from model.batches import branch_loader
from model.config import BranchConfig, TrainConfig
from model.flops import train_flops_per_token
from model.run import FinishedRun, read_run, resolve


def cost_of(resolved: Resolved, last_seconds: float | None = None) -> str:
    """`3.1e13 FLOPs, reads 12.4 MB, took 84 s last time` - whatever of it is known."""
    parts = []
    if (flops := training_flops(resolved)) is not None:
        parts.append(f"{flops:.2g} FLOPs")
    if (size := input_bytes(resolved)) and not resolved.waiting_for:
        parts.append(f"reads {size / 1e6:.1f} MB")
    if last_seconds is not None:
        parts.append(f"took {last_seconds:.0f} s last time")
    return ", ".join(parts)


def training_flops(resolved: Resolved) -> float | None:
    """Training FLOPs by the published convention (`model.flops`), or None for what trains nothing."""
    config = resolved.config
    if isinstance(config, TrainConfig):
        run = resolve(config)
        return run.flops_after(run.end_step)
    parent = resolved.inputs.get("parent")
    if isinstance(config, BranchConfig) and isinstance(parent, Artifact):
        return _branch_flops(config, read_run(parent, config.parent_step))
    return None


def _branch_flops(config: BranchConfig, parent: FinishedRun) -> float:
    """By the branch's own batch, which need not be the parent's first."""
    loader = branch_loader(config, parent.run.loader, parent.state.step - parent.run.start_step)
    tokens = config.cooldown_steps * loader.batch_sequences * loader.sequence_tokens
    return tokens * train_flops_per_token(parent.run.model, loader.sequence_tokens)


def input_bytes(resolved: Resolved) -> int:
    """Bytes of all input artifacts that are published."""
    located = [found if isinstance(found, Artifact) else list(found.values()) for found in resolved.inputs.values()]
    flat = [item for found in located for item in (found if isinstance(found, list) else [found])]
    return sum(entry.size for artifact in flat for entry in artifact.manifest.files)
