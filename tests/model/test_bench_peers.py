"""The bench beside other programs: who is asked, what is refused, what is said."""

import json
import sys
from pathlib import Path

import pytest

from model.accounting import account_of
from model.bench import against
from model.bench.__main__ import main
from model.bench.against import Comparison, compare, lines_of
from model.bench.peers import CANDIDATES
from model.bench.shapes import TRIANGLE, Shape, Side
from tests.model.learner import CHEAP, variant

MODEL = variant(kernels=CHEAP, layers=1, global_every=None)
SHAPE = Shape("tiny", MODEL, 2, 16, TRIANGLE, ())
OURS = Side("ours", "peers", MODEL)
STEP = {"step_s": 4.0, "cpu_s": 8.0, "loss": 4.0}


def stub(folder: Path, parameters: int, loss: float) -> Path:
    """An interpreter that is asked to run a peer and answers like one."""
    program = folder / "python"
    ready = json.dumps({"ready_s": 1.0, "parameters": parameters, "loss": loss, "versions": {"stub": "1"}})
    program.write_text(f"#!/bin/sh\necho '{ready}'\nwhile read -r line; do echo '{json.dumps(STEP)}'; done\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Our side without a compile: its losses."""
    losses = [4.2, 4.1]
    monkeypatch.setattr(against, "warm_replicas", lambda shape, side: (lambda: 4.0, losses))
    return losses


def test_every_round_makes_one_update_of_each_and_compares_within_the_round(tmp_path: Path, quick: list[float]) -> None:
    parameters = account_of(MODEL, 16, TRIANGLE).total_parameters
    found = compare(SHAPE, OURS, stub(tmp_path, parameters, 4.22), 3, False, lambda line: None)
    assert {peer.name for peer in found.peers} == set(CANDIDATES)
    assert not found.absent
    for peer in found.peers:
        assert (peer.tokens_per_s.median, peer.tokens_per_cpu_s.median) == (32 / 4.0, 32 / 8.0)
        assert found.ratios[peer.name].median == pytest.approx(4.0 * found.ours.tokens_per_s.median / 32)
    assert Comparison.model_validate_json(found.model_dump_json()) == found
    assert "best torch MoE: olmoe-" in list(lines_of(found))[-1]


@pytest.mark.parametrize(("share", "loss", "said"), [(1.5, 4.2, "they are not one shape"), (1.0, 4.3, "they don't compute the same")])
def test_a_peer_that_trains_another_model_is_refused(tmp_path: Path, quick: list[float], share: float, loss: float, said: str) -> None:
    parameters = account_of(MODEL, 16, TRIANGLE).total_parameters
    with pytest.raises(ValueError, match=said):
        compare(SHAPE, OURS, stub(tmp_path, int(parameters * share), loss), 1, False, lambda line: None)


def test_a_peer_that_is_not_installed_is_said_to_be_absent_with_its_error(quick: list[float]) -> None:
    found = compare(SHAPE, OURS, Path(sys.executable), 1, False, lambda line: None)
    assert found.peers == []
    assert found.absent["olmoe-eager"] == "ModuleNotFoundError: No module named 'torch'"


def test_an_interpreter_that_is_not_there_is_said_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--peers", "/nowhere/python"]) == 2
    assert "--peers /nowhere/python: there is no such interpreter" in capsys.readouterr().err
