"""Repetitions are in the lineage of a profile that asks for them, and in no other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from assets.profile import load_profile
from assets.profile_file import ProfileError
from tests.journeys.lab import PROFILE

PROBE = """
import json
import orchestration.definitions
from assets.lineage import STAGES, in_order
from orchestration.jobs import SELECTIONS
graph = orchestration.definitions.defs.resolve_asset_graph()
covered = {key.to_user_string() for name in ("train", "evaluate") for key in SELECTIONS[name].resolve(graph)}
gap = STAGES["perplexity_gap"]
print(json.dumps({
    "partitions": STAGES["repeat"].partitions, "program": gap.program, "inputs": sorted(gap.inputs),
    "order": [stage.key for stage in in_order()], "covered": sorted(covered & {"repeat", "repeat_perplexity"}),
}))
"""


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME_OF_TEST", "TEXTS", "JAX_CACHE"):
        monkeypatch.setenv(name, str(tmp_path))
    path = tmp_path / "asking.yaml"
    path.write_text(f"{PROFILE.read_text()}\nrepeats: {{cell: w16, seeds: [1, 2]}}\n")
    return path


def test_a_profile_that_asks_for_repetitions_has_them_before_the_gap_that_reads_them(asking: Path) -> None:
    env = {**os.environ, "SEAWAY_PROFILE": str(asking)}
    found = json.loads(subprocess.run([sys.executable, "-c", PROBE], check=True, capture_output=True, env=env).stdout)
    assert found["partitions"] == ["w16.seed1", "w16.seed2"]
    assert found["program"].endswith(":compare_with_repeats")
    assert found["inputs"] == ["perplexity", "repeats"]
    assert found["covered"] == ["repeat", "repeat_perplexity"]
    order = found["order"]
    assert order.index("repeat") < order.index("repeat_perplexity") < order.index("perplexity_gap")


def test_repetitions_are_the_cell_with_another_seed_and_nothing_else(asking: Path) -> None:
    profile = load_profile(str(asking))
    cell, repeated = profile.cell_config("w16"), [profile.repeat_config(f"w16.seed{seed}") for seed in (1, 2)]
    assert [(one.seed, one.loader.seed) for one in repeated] == [(1, 1), (2, 2)]
    for one in repeated:
        assert one.model_copy(update={"seed": cell.seed, "loader": one.loader.model_copy(update={"seed": cell.loader.seed})}) == cell


@pytest.mark.parametrize(
    ("repeats", "answer"),
    [
        ("{cell: w99, seeds: [1, 2]}", r"repeats.cell: the ladder has no cell 'w99'; choose one of w16, w24"),
        ("{cell: w16, seeds: [1]}", r"repeats.seeds: .*at least 2 items"),
        ("{cell: w16, seeds: [1, 1]}", r"repeats.seeds: seeds = \[1, 1\] names one twice"),
    ],
)
def test_repetitions_that_can_not_be_are_refused(asking: Path, repeats: str, answer: str) -> None:
    asking.write_text(f"{PROFILE.read_text()}\nrepeats: {repeats}\n")
    with pytest.raises(ProfileError, match=answer):
        load_profile(str(asking))
