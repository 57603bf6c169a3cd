"""A run's rows: host values, once, in order."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from infra.artifacts.writer import Writer
from model.tracker import Tracker


def test_rows_survive_the_journal_bit_for_bit() -> None:
    tracker = Tracker()
    loss = float(np.float32(1) / np.float32(3))
    tracker.log_step({"step": 1, "loss": loss, "flops_conventions": {"head": True}})
    tracker.log_eval({"step": 1, "domains": {"web": {"nats": 0.1 + 0.2}}})
    restored = Tracker.restore(tracker.journal())
    assert restored.metrics == tracker.metrics
    assert restored.evals[0]["domains"]["web"]["nats"].hex() == (0.1 + 0.2).hex()
    assert restored.journal() == tracker.journal()


def test_a_step_is_logged_once_and_in_order() -> None:
    tracker = Tracker()
    tracker.log_step({"step": 2, "loss": 1.0})
    for step in (2, 1):
        with pytest.raises(ValueError, match=f"step {step} was logged after step 2"):
            tracker.log_step({"step": step, "loss": 1.0})


@pytest.mark.parametrize("value", [jnp.float32(1.0), np.float32(1.0), np.ones(2)])
def test_device_and_array_values_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match="metric 'loss' is a"):
        Tracker().log_step({"step": 1, "loss": value})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_no_numbers_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="metric 'loss' is"):
        Tracker().log_step({"step": 1, "loss": value})


def test_files_hold_one_object_a_line(tmp_path: Path) -> None:
    tracker = Tracker()
    tracker.log_step({"step": 1, "loss": 2.0})
    tracker.log_step({"step": 2, "loss": 1.0})
    tracker.write(Writer(str(tmp_path / "attempt"), scratch_url=str(tmp_path / "scratch")))
    lines = (tmp_path / "attempt" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["loss"] for line in lines] == [2.0, 1.0]
    assert (tmp_path / "attempt" / "evals.jsonl").read_bytes() == b""
