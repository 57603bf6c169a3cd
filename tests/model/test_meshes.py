"""The same mathematics on eight devices as on one: every mesh, experts that tokens travel to, and runs that change their mesh."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from infra.artifacts.artifact import Artifact
from model.tracker import read_rows
from tests.model.devices import on_devices
from tests.model.meshes import cases

LOSS = 2e-6
"""Float32 sums in another order, on a loss of about four nats."""


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    done = on_devices(8, "tests.model.meshes")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("case", cases())
def test_loss_gradient_and_router_statistics_are_those_of_one_device(report: dict[str, Any], case: str) -> None:
    found = report["gradients"][case]
    assert found["loss"] < LOSS
    assert found["gradient"] < 2e-5  # of each leaf's largest entry: small gradients are differences of large sums
    assert found["load"] == 0
    assert found["next_bias"] < 1e-5  # a margin is the difference of two scores, each within rounding of the other device's
    assert found["dropped"] == found["dropped by one device"]
    assert (found["dropped"] > 0) == case.startswith("capacity")


def test_rows_arrive_where_a_plain_loop_puts_them_come_home_and_pull_back_their_gradients(report: dict[str, Any]) -> None:
    assert report["exchange"]["there"] == 0
    assert report["exchange"]["back"] == 0
    assert report["exchange"]["transpose"] == 0


@pytest.mark.parametrize("devices", ["1", "2", "4", "8"])
def test_experts_on_any_number_of_devices_are_those_of_the_dense_oracle(report: dict[str, Any], devices: str) -> None:
    found = report["experts"][devices]
    assert found["output"] < 1.2e-6
    assert found["gradient"] < 3e-7  # of each gradient's length
    assert found["load"] == 0
    assert found["next_bias"] < 1.2e-6


def test_half_the_latent_width_sends_half_the_bytes(report: dict[str, Any]) -> None:
    assert report["sent_bytes"]["full"] == 2 * report["sent_bytes"]["half"] > 0


def test_a_mean_over_devices_of_uneven_weight_is_that_of_all_tokens(report: dict[str, Any]) -> None:
    found = report["uneven"]
    assert max(found["loss"], found["of_rows"], found["of_head"]) < 1e-6
    assert found["mean of means"] > 0.01, "which would be another number"


def test_ten_steps_on_eight_devices_lose_what_they_lose_on_one_and_again(report: dict[str, Any]) -> None:
    found = report["losses"]
    assert found["difference"] < LOSS
    assert found["drift"] < 1e-6
    assert found["equal again"]


def losses_of(directory: Path) -> list[float]:
    with Artifact.open_at(str(directory)).open("metrics.jsonl") as stream:
        return [row["loss"] for row in read_rows(stream)]


@pytest.mark.faults
def test_a_run_that_is_killed_and_goes_on_from_8_devices_to_2_and_back_to_8_loses_what_it_would_have(
    data: dict[str, Artifact], tmp_path: Path
) -> None:
    inputs = (data["store"].url, data["mixture"].url)
    straight = on_devices(8, "tests.model.lives", str(tmp_path / "straight"), *inputs)
    assert straight.returncode == 0, straight.stderr
    for devices, steps in ((8, "5"), (2, "9")):
        killed = on_devices(devices, "tests.model.lives", str(tmp_path / "moved"), *inputs, steps)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    last = on_devices(8, "tests.model.lives", str(tmp_path / "moved"), *inputs)
    assert last.returncode == 0, last.stderr
    moved, expected = losses_of(tmp_path / "moved"), losses_of(tmp_path / "straight")
    assert len(moved) == len(expected) == 12
    assert max(abs(a - b) for a, b in zip(moved, expected, strict=True)) < LOSS
    assert moved != expected, "the steps on two devices did add in another order"
