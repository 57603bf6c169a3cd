"""Whole runs on spheres: they learn, they resume in the same bytes, and they stop where a matrix has left its sphere."""

from pathlib import Path
from typing import Any

import jax
import pytest

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from model.config import CheckpointPolicy, OptimizerConfig
from model.layout import Layout
from model.loop import RadiusDriftError, run_to_end
from model.run import data_of, resolve
from model.state import TrainState
from model.step import start_state
from model.tracker import read_rows
from model.train import train
from tests.builders import run_program
from tests.model.cells import tiny_config

OPTIMIZER = OptimizerConfig(
    matrix_rule="muon_sphere", head_rule="adam_sphere", muon_learning_rate=0.05, adam_learning_rate=0.02, muon_ns_coefficients="dion"
)
CONFIG = tiny_config(optimizer=OPTIMIZER, checkpoints=CheckpointPolicy(every_s=1e9, every_steps=3), eval_every_steps=None)


class Killed(BaseException):
    """Stands for the death of the process between two steps."""


def test_a_run_on_spheres_learns_keeps_every_norm_and_resumes_in_the_same_bytes(data: dict[str, Artifact], tmp_path: Path) -> None:
    straight = run_program(train, CONFIG, tmp_path / "straight", **data)
    with straight.open("metrics.jsonl") as stream:
        rows = read_rows(stream)
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.5
    assert all(row["radius_drift"] < 1e-6 for row in rows)
    assert rows[-1]["head_learning_rate"] == rows[-1]["muon_learning_rate"]

    def die(done: int, total: int | None, unit: str, **measures: float) -> None:
        if done == 8:
            raise Killed

    with pytest.raises(Killed):
        train(CONFIG, **data, out=Writer(str(tmp_path / "first"), scratch_url=str(tmp_path / "scratch"), progress=die))
    assert run_program(train, CONFIG, tmp_path, **data).digest == straight.digest


def test_a_run_stops_where_a_matrix_has_left_its_sphere(data: dict[str, Artifact], tmp_path: Path) -> None:
    run = resolve(CONFIG)

    def begin(layout: Layout) -> TrainState:
        state = start_state(run, layout)
        layers: dict[str, Any] = state.parameters["layers"]
        moe = layers["moe"] | {"expert_up": layers["moe"]["expert_up"].at[1, 2].multiply(0.99)}
        return state._replace(parameters=jax.tree.map(lambda a: a, state.parameters) | {"layers": layers | {"moe": moe}})

    out = Writer(str(tmp_path / "attempt"), scratch_url=str(tmp_path / "scratch"))
    with pytest.raises(RadiusDriftError, match=r"step 1: a matrix that must keep its norm is off by 0\.01 of it"):
        run_to_end(
            run, data_of(data["store"], data["mixture"]), CONFIG.checkpoints, CONFIG.mesh, begin, data["store"], data["mixture"], out
        )
