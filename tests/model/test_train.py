"""Runs on a corpus that can be learnt: they learn it, and dying on the way changes nothing."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from model.architecture import ModelConfig
from model.checkpoint import CheckpointMismatchError
from model.config import CheckpointPolicy, OptimizerConfig, TrainConfig
from model.finish import MODEL, OPTIMIZER
from model.loop import NonFiniteLossError
from model.presets import tiny_model
from model.run import FLOPS_CONVENTIONS, read_run
from model.tracker import read_rows
from model.train import train
from tests.builders import publish, run_program
from tests.model.cells import tiny_config
from tests.model.corpus import VOCAB
from tests.model.learner import CHEAP, variant

CONFIG = tiny_config(checkpoints=CheckpointPolicy(every_s=1e9, every_steps=3))


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Artifact]) -> Artifact:
    """The run that nothing happened to."""
    return run_program(train, CONFIG, tmp_path_factory.mktemp("straight"), **data)


def rows(artifact: Artifact, name: str) -> list[dict[str, Any]]:
    with artifact.open(name) as stream:
        return read_rows(stream)


def test_the_loss_falls_in_training_and_on_held_out_text(straight: Artifact) -> None:
    losses = [row["loss"] for row in rows(straight, "metrics.jsonl")]
    held_out = [row["macro_nats_per_token"] for row in rows(straight, "evals.jsonl")]
    no_idea = math.log(VOCAB - 2)  # nats per token of whoever knows the tokens but not their order
    assert losses[0] > no_idea > losses[-1] + 0.5
    assert held_out[0] > no_idea > held_out[-1] + 0.5
    assert straight.stats["held_out"]["macro_nats_per_token"] == held_out[-1]


def test_rows_come_once_and_in_order_with_tokens_flops_and_conventions(straight: Artifact) -> None:
    metrics, evals = rows(straight, "metrics.jsonl"), rows(straight, "evals.jsonl")
    assert [row["step"] for row in metrics] == [2, 4, 6, 8, 10, 12, 14, 16]
    assert [row["step"] for row in evals] == [0, 8, 16]
    assert [row["tokens"] for row in evals] == [0, 8 * 128, 16 * 128]
    assert metrics[-1]["flops"] == straight.stats["flops"] > 0
    assert all(row["flops_conventions"] == FLOPS_CONVENTIONS and row["attention_backend"] == "triangle" for row in metrics)
    assert metrics[0]["learning_rate"] == pytest.approx(1.0)  # a share of the peak: warmed up by the second update
    assert metrics[-1]["learning_rate"] > 0.05  # stopped at four fifths of the schedule, above the floor
    assert set(evals[0]["domains"]) == {"code", "prose"}


def test_a_run_describes_where_it_stopped(straight: Artifact, data: dict[str, Artifact]) -> None:
    finished = read_run(straight)
    assert (finished.state.step, finished.state.tokens) == (16, 16 * 128)
    assert finished.state.data.store == data["store"].digest
    assert finished.run.schedule_share == pytest.approx(0.8)
    assert {MODEL, OPTIMIZER} < set(straight.names)


def test_an_equal_run_gives_equal_bytes_and_another_seed_gives_others(
    straight: Artifact, data: dict[str, Artifact], tmp_path: Path
) -> None:
    again = run_program(train, CONFIG.model_copy(update={"checkpoints": CheckpointPolicy()}), tmp_path / "again", **data)
    assert again.digest == straight.digest
    other = run_program(train, CONFIG.model_copy(update={"seed": 1}), tmp_path / "other", **data)
    assert other.digest != straight.digest


class Killed(BaseException):
    """Stands for the death of the process between two steps."""


def mortal(directory: Path, name: str, death: int, beats: list[int] | None = None) -> Writer:
    """A writer whose job dies once `death` steps are done. All share one scratch directory."""

    def progress(done: int, total: int | None, unit: str, **measures: float) -> None:
        if beats is not None:
            beats.append(done)
        if done == death:
            raise Killed

    return Writer(str(directory / name), scratch_url=str(directory / "scratch"), progress=progress)


@pytest.mark.parametrize("deaths", [(1,), (4, 9), (7, 7, 16)], ids=str)
def test_a_resumed_run_ends_in_the_bytes_of_a_straight_one(
    straight: Artifact, data: dict[str, Artifact], tmp_path: Path, deaths: tuple[int, ...]
) -> None:
    for number, death in enumerate(deaths):
        with pytest.raises(Killed):
            train(CONFIG, **data, out=mortal(tmp_path, f"attempt-{number}", death))
    assert run_program(train, CONFIG, tmp_path, **data).digest == straight.digest


def test_a_run_does_only_the_steps_that_are_missing(data: dict[str, Artifact], tmp_path: Path) -> None:
    beats: list[int] = []
    for name in ("first", "second"):
        beats.clear()
        with pytest.raises(Killed):
            train(CONFIG, **data, out=mortal(tmp_path, name, 7, beats))
    assert beats == [7]  # the checkpoint of step 6 was taken


def test_a_killed_process_leaves_a_run_that_ends_in_the_same_bytes(straight: Artifact, data: dict[str, Artifact], tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from infra.artifacts.artifact import Artifact; from model.train import train\n"
        "from tests.builders import run_program; from tests.model.test_train import CONFIG\n"
        "run_program(train, CONFIG, Path(sys.argv[1]), store=Artifact.open_at(sys.argv[2]), mixture=Artifact.open_at(sys.argv[3]))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), data["store"].url, data["mixture"].url])
    try:
        _wait_for_checkpoint(tmp_path / "scratch" / "checkpoints", process)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(timeout=60) == -signal.SIGKILL
    assert run_program(train, CONFIG, tmp_path, **data).digest == straight.digest


def _wait_for_checkpoint(folder: Path, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 240  # compiling on a busy machine
    while not list(folder.glob("*/COMMITTED.json")):
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline, "no checkpoint in time"
        time.sleep(0.001)


def test_checkpoints_of_another_config_are_refused(data: dict[str, Artifact], tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train(CONFIG, **data, out=mortal(tmp_path, "first", 4))
    with pytest.raises(CheckpointMismatchError, match=r"seed: 0 -> 1; give this run a scratch directory of its own"):
        run_program(train, CONFIG.model_copy(update={"seed": 1}), tmp_path, **data)


def test_a_run_with_a_capacity_is_scored_without_it_and_with_it(data: dict[str, Artifact], tmp_path: Path) -> None:
    config = tiny_config(model=variant(capacity_factor=0.5, kernels=CHEAP), stop_after_steps=1)
    found = rows(run_program(train, config, tmp_path, **data), "evals.jsonl")
    for row in found:
        assert row["drop_mode"] == "dropless"
        for name in ("macro_nats_per_token", "micro_bits_per_byte"):
            assert row[f"as_trained_{name}"] != row[name]


def test_a_diverging_run_fails_at_its_step_and_says_so(data: dict[str, Artifact], tmp_path: Path) -> None:
    hot = CONFIG.model_copy(update={"optimizer": OptimizerConfig(adam_learning_rate=1e38, muon_learning_rate=1e38)})
    with pytest.raises(NonFiniteLossError, match=r"step \d+: (loss|gradient_norm).* is (nan|inf).*lower the rates"):
        run_program(train, hot, tmp_path, **data)
    assert not (tmp_path / "attempt" / "metrics.jsonl").exists()


def test_a_store_with_a_larger_vocabulary_is_refused(data: dict[str, Artifact], tmp_path: Path) -> None:
    model = ModelConfig(**{**tiny_model().model_dump(), "vocab_size": 32})
    with pytest.raises(ValueError, match="the model knows 32; raise vocab_size"):
        run_program(train, CONFIG.model_copy(update={"model": model}), tmp_path, **data)


def test_impossible_runs_are_refused_where_they_are_written_down() -> None:
    with pytest.raises(ValueError, match="stop_after_steps = 21 lies behind schedule_steps = 20"):
        TrainConfig(**{**json.loads(CONFIG.model_dump_json()), "stop_after_steps": 21})
    cooldown = {"kind": "cooldown", "schedule_steps": 5, "start_step": 3, "start_share": 0.5}
    with pytest.raises(ValueError, match="use the branch program"):
        TrainConfig(**{**json.loads(CONFIG.model_dump_json()), "schedule": cooldown, "stop_after_steps": None})


def test_the_heartbeat_carries_speed_and_the_artifact_does_not(data: dict[str, Artifact], tmp_path: Path) -> None:
    beats: list[dict[str, float]] = []
    out = Writer(
        str(tmp_path / "attempt"),
        scratch_url=str(tmp_path / "scratch"),
        progress=lambda done, total, unit, **measures: beats.append({"done": done, "total": float(total or 0), **measures}),
    )
    stats = train(CONFIG.model_copy(update={"stop_after_steps": 2}), **data, out=out)
    artifact = publish(tmp_path, out, stats.model_dump())
    assert [beat["done"] for beat in beats if "tokens_per_second" in beat][:2] == [1, 2]
    assert beats[-1]["total"] == 2
    assert not any("second" in name for row in rows(artifact, "metrics.jsonl") for name in row)
