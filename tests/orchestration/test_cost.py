"""What a run would cost is what it costs."""

from pathlib import Path

import pytest

from assets.lineage import Stage
from assets.resolve import Node, Resolved
from infra.artifacts.artifact import Artifact
from infra.artifacts.config import ProgramConfig
from model.branch import branched
from model.config import BatchStage, BranchConfig, LoaderConfig
from model.run import Run, read_run, resolve
from orchestration.cost import training_flops
from tests.model.cells import finished_run, tiny_config


def resolved(program: str, config: ProgramConfig, **inputs: Artifact) -> Resolved:
    stage = Stage("run", program, "1", {}, (), (), lambda partition: config, "accelerator")
    return Resolved(Node("run"), stage, config, inputs, (), None)


def spent(run: Run) -> float:
    return run.flops_after(run.end_step) - run.flops_after(run.start_step)


def test_a_run_from_scratch_is_priced_as_it_counts_itself() -> None:
    config = tiny_config()
    assert training_flops(resolved("model.train:train", config)) == spent(resolve(config))


@pytest.mark.parametrize(
    "changes",
    [{}, {"batch_sequences": 16}, {"sequence_tokens": 64}, {"sequence_tokens": 64, "batch_sequences": 3}],
    ids=str,
)
def test_a_branch_is_priced_by_its_own_batch_and_not_by_its_parents_first(tmp_path: Path, changes: dict[str, int]) -> None:
    loader = LoaderConfig(batch_sequences=4, sequence_tokens=32, batch_stages=(BatchStage(start_step=10, batch_sequences=8),))
    parent = finished_run(tmp_path, resolve(tiny_config(loader=loader)), {})
    config = BranchConfig(cooldown_steps=5, **changes)
    run = branched(config, read_run(parent), parent.digest)
    assert training_flops(resolved("model.branch:branch", config, parent=parent)) == pytest.approx(spent(run), rel=1e-12)
