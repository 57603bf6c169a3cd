"""Preregistration: only the predicted result is scored."""

from pathlib import Path

import numpy as np
import pytest

from infra.artifacts.artifact import Artifact
from model.config import HeldOutConfig, OptimizerConfig, PredictionConfig, ScalingConfig, ScheduleConfig
from model.law import PowerLaw
from model.prediction import Measured, PredictionError, UnscoredError, predict, read_prediction, score
from model.run import Data, Origin, read_run, resolve
from model.scaling import fit_scaling_law, metric_identity
from tests.builders import run_program
from tests.model.cells import finished_run, tiny_config

PLANTED = PowerLaw(floor=1.6, log_scale=float(np.log(60.0)), exponent=0.12)
HERO = tiny_config(schedule=ScheduleConfig(schedule_steps=2000), stop_after_steps=1600)


def law_artifact(directory: Path, noise: tuple[float, ...] = (0.0, 0.0, 0.0)) -> Artifact:
    ladder = {}
    for index, error in enumerate(noise):
        steps = 20 * 3**index
        run = resolve(tiny_config(schedule=ScheduleConfig(schedule_steps=steps), stop_after_steps=steps * 4 // 5))
        loss = PLANTED.loss_at(run.flops_after(run.end_step)) + error
        ladder[f"cell-{index}"] = finished_run(directory / f"cell-{index}", run, {"macro_nats_per_token": loss})
    return run_program(fit_scaling_law, ScalingConfig(), directory / "law", ladder=ladder)


def predicted(directory: Path, **fields: float) -> Artifact:
    return run_program(predict, PredictionConfig(run=HERO, **fields), directory / "prediction", scaling_law=law_artifact(directory))


def measured(directory: Path, value: float, **changes: object) -> Measured:
    run = resolve(HERO).model_copy(update={key: item for key, item in changes.items() if key != "data"})
    data = changes.get("data", Data(store="5" * 64, mixture="6" * 64))
    assert isinstance(data, Data)
    artifact = finished_run(directory / "hero", run, {"macro_nats_per_token": value}, data=data)
    finished = read_run(artifact)
    identity = metric_identity(finished, "macro_nats_per_token")
    return Measured(identity=identity, tokens=finished.state.tokens, value=value, run=finished.run)


def test_a_prediction_names_value_mark_and_tolerance_before_the_run(tmp_path: Path) -> None:
    found = read_prediction(predicted(tmp_path, min_tolerance=0.05))
    run = resolve(HERO)
    assert found.predicted == pytest.approx(PLANTED.loss_at(run.flops_after(1600)), rel=1e-6)
    assert found.token_mark == 1600 * 128
    assert found.tolerance == 0.05
    assert found.extrapolation == pytest.approx(1600 / 144)
    assert found.identity.drop_mode == "dropless"


def test_the_tolerance_widens_with_what_the_ladder_does_not_know(tmp_path: Path) -> None:
    config = PredictionConfig(run=HERO, min_tolerance=1e-6, standard_errors=2.0)
    noisy = run_program(predict, config, tmp_path / "prediction", scaling_law=law_artifact(tmp_path, noise=(0.01, -0.02, 0.01)))
    found = read_prediction(noisy)
    assert found.standard_error is not None
    assert found.tolerance == pytest.approx(2 * found.standard_error)
    assert found.tolerance > 1e-3


def test_the_predicted_run_is_scored_with_a_signed_error(tmp_path: Path) -> None:
    prediction = read_prediction(predicted(tmp_path, min_tolerance=0.05))
    better = score(prediction, measured(tmp_path, prediction.predicted - 0.04))
    assert better.signed_error == pytest.approx(-0.04)
    assert better.is_within_tolerance
    assert not score(prediction, measured(tmp_path / "worse", prediction.predicted + 0.06)).is_within_tolerance


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"end_step": 1598}, "token mark is 204544, predicted was 204800"),
        ({"held_out": HeldOutConfig(sequence_tokens=32, tokens_per_domain=800)}, "held_out is"),
        ({"data": Data(store="9" * 64, mixture="6" * 64)}, "data is"),
        ({"optimizer": OptimizerConfig(muon_learning_rate=0.5)}, r"run differs in optimizer.muon_learning_rate: 0.01 -> 0.5"),
        ({"origin": Origin(parent="1" * 64, step=10, tokens=1280, flops=1.0)}, "a branch that left its parent at step 10"),
    ],
)
def test_any_other_result_is_not_scored(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    prediction = read_prediction(predicted(tmp_path))
    with pytest.raises(UnscoredError, match=reason):
        score(prediction, measured(tmp_path, prediction.predicted, **changes))


def test_another_metric_is_not_scored(tmp_path: Path) -> None:
    prediction = read_prediction(predicted(tmp_path))
    other = measured(tmp_path, prediction.predicted)
    renamed = other.model_copy(update={"identity": other.identity.model_copy(update={"metric": "micro_bits_per_byte"})})
    with pytest.raises(UnscoredError, match="metric is micro_bits_per_byte, predicted was macro_nats_per_token"):
        score(prediction, renamed)


def test_a_run_at_another_place_on_its_schedule_is_not_predicted(tmp_path: Path) -> None:
    config = PredictionConfig(run=tiny_config(stop_after_steps=None))
    with pytest.raises(PredictionError, match=r"ends at 1.00 of its schedule, the ladder's cells at 0.80"):
        run_program(predict, config, tmp_path / "prediction", scaling_law=law_artifact(tmp_path))
