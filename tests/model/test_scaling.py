"""The ladder's law as a program."""

from pathlib import Path

import numpy as np
import pytest

from infra.artifacts.artifact import Artifact
from model.config import HeldOutConfig, ScalingConfig, ScheduleConfig
from model.law import PowerLaw, ScalingError
from model.run import Data, resolve
from model.scaling import ScalingLaw, fit_scaling_law
from tests.builders import run_program
from tests.model.cells import cell, finished_run, tiny_config

PLANTED = PowerLaw(floor=1.6, log_scale=float(np.log(60.0)), exponent=0.12)


def planted_ladder(directory: Path, count: int) -> dict[str, Artifact]:
    cells = {}
    for index in range(count):
        steps = 20 * 3**index
        config = tiny_config(schedule=ScheduleConfig(schedule_steps=steps), stop_after_steps=steps * 4 // 5)
        run = resolve(config)
        loss = PLANTED.loss_at(run.flops_after(run.end_step))
        cells[f"cell-{index}"] = finished_run(directory / f"cell-{index}", run, {"macro_nats_per_token": loss})
    return cells


def law_of(artifact: Artifact) -> ScalingLaw:
    return ScalingLaw.model_validate(artifact.read_json("scaling_law.json"))


def test_the_program_recovers_a_planted_law_and_describes_its_cells(tmp_path: Path) -> None:
    artifact = run_program(fit_scaling_law, ScalingConfig(), tmp_path / "law", ladder=planted_ladder(tmp_path, 4))
    fitted = law_of(artifact)
    assert fitted.law.exponent == pytest.approx(PLANTED.exponent, rel=1e-6)
    assert artifact.stats["largest_residual"] == pytest.approx(0, abs=1e-9)
    assert [found.tokens for found in fitted.cells] == [16 * 128, 48 * 128, 144 * 128, 432 * 128]
    assert len(fitted.leave_one_out) == 4
    assert fitted.floor_is_pinned


def test_a_free_floor_needs_five_cells_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ScalingError, match="at least 5 cells, there are 4; set pinned_floor"):
        run_program(fit_scaling_law, ScalingConfig(pinned_floor=None), tmp_path / "law", ladder=planted_ladder(tmp_path, 4))


def test_five_cells_may_free_the_floor(tmp_path: Path) -> None:
    artifact = run_program(fit_scaling_law, ScalingConfig(pinned_floor=None), tmp_path / "law", ladder=planted_ladder(tmp_path, 6))
    assert law_of(artifact).law.exponent == pytest.approx(PLANTED.exponent, rel=0.01)


def test_cells_that_measure_different_things_make_no_law(tmp_path: Path) -> None:
    one = cell(tmp_path / "a", 3.0)
    other = cell(tmp_path / "b", 2.9, steps=60, held_out=HeldOutConfig(sequence_tokens=64, tokens_per_domain=400))
    with pytest.raises(ScalingError, match=r"'a' and 'b' don't measure the same thing \(held_out"):
        run_program(fit_scaling_law, ScalingConfig(), tmp_path / "law", ladder={"a": one, "b": other})


def test_cells_on_other_data_or_elsewhere_on_their_schedule_make_no_law(tmp_path: Path) -> None:
    one = cell(tmp_path / "a", 3.0)
    run = resolve(tiny_config())
    other_data = finished_run(tmp_path / "b", run, {"macro_nats_per_token": 2.9}, data=Data(store="7" * 64, mixture="6" * 64))
    with pytest.raises(ScalingError, match="data"):
        run_program(fit_scaling_law, ScalingConfig(), tmp_path / "law", ladder={"a": one, "b": other_data})
    fully_decayed = finished_run(tmp_path / "c", resolve(tiny_config(stop_after_steps=None)), {"macro_nats_per_token": 2.9})
    with pytest.raises(ScalingError, match="schedule_share"):
        run_program(fit_scaling_law, ScalingConfig(), tmp_path / "law2", ladder={"a": one, "c": fully_decayed})


def test_a_cell_without_its_final_row_or_metric_is_named(tmp_path: Path) -> None:
    early = finished_run(tmp_path / "a", resolve(tiny_config()), {"macro_nats_per_token": 3.0}, step=15)
    with pytest.raises(ScalingError, match="no held-out row at its last step 15"):
        run_program(fit_scaling_law, ScalingConfig(), tmp_path / "law", ladder={"a": early})
    found = cell(tmp_path / "b", 3.0)
    with pytest.raises(ScalingError, match="has no micro_bits_per_byte"):
        run_program(fit_scaling_law, ScalingConfig(metric="micro_bits_per_byte"), tmp_path / "law2", ladder={"b": found})


def test_an_empty_ladder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScalingError, match="no cells"):
        run_program(fit_scaling_law, ScalingConfig(), tmp_path / "law", ladder={})
