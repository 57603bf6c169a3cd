"""kill -9 at twenty random moments of a run, in real processes: whatever the moment, the run ends in the bytes of an undisturbed one.

The moments are drawn (seeded) from those that an undisturbed run has, every kind of them at least once. Each story is one run
that dies four times, each time further on, and is then left in peace.
"""

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.artifacts.artifact import Artifact
from model.checkpoint import KEPT, MARKER
from tests.model.nursery import MOMENTS, Life

pytestmark = pytest.mark.faults

KINDS = {
    "before a checkpoint": r"make .*/step-\d+$",
    "in its state": r"write .*/state\.safetensors$",
    "between its files": r"write .*/\.journal\.json\.tmp$",
    "in its journal": r"rename .*/\.journal\.json\.tmp$",
    "before it is on the disk": r"sync .*/state\.safetensors$",
    "before the commit marker": r"write .*/\.COMMITTED\.json\.tmp$",
    "in the commit": r"rename .*/\.COMMITTED\.json\.tmp$",
    "after the commit marker": r"remove .*/\.COMMITTED\.json\.tmp$",
    "before cleaning": r"remove .*/COMMITTED\.json$",
    "after a marker was removed": r"clear .*/step-\d+$",
    "in cleaning": r"remove .*/(journal\.json|state\.safetensors)$",
}
STORIES, SAVES = 5, 4  # saves from which a story draws three deaths; its fourth comes later, in a step or in the artifact
IN_STEP, IN_ARTIFACT = "in a step", "in the artifact"
MAX_DELAY_S = 0.02  # several steps of the tiny model on an idle machine

Deaths = list[tuple[str, str, float]]
"""(kind, moment, seconds until it kills), in order."""


@pytest.fixture(scope="module")
def live(data: dict[str, Artifact]) -> Iterator[Callable[[Life], int]]:
    """Lives one life in a process of its own and gives its exit code."""
    command = [sys.executable, "-m", "tests.model.nursery", data["store"].url, data["mixture"].url]
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # the process that forks has one thread
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as nursery:
        orders, answers = nursery.stdin, nursery.stdout
        assert orders is not None
        assert answers is not None

        def live(life: Life) -> int:
            print(life.model_dump_json(), file=orders, flush=True)
            return int(answers.readline())

        yield live
        orders.close()
        assert nursery.wait(timeout=60) == 0


@pytest.fixture(scope="module")
def undisturbed(live: Callable[[Life], int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert live(Life(directory=str(folder))) == 0
    return folder


@pytest.mark.parametrize("number", range(STORIES))
def test_a_run_that_is_killed_four_times_ends_in_the_same_bytes(
    number: int, live: Callable[[Life], int], undisturbed: Path, tmp_path: Path
) -> None:
    story = stories(json.loads((undisturbed / MOMENTS).read_text()))[number]
    for kind, moment, delay_s in story:
        assert live(Life(directory=str(tmp_path), death=moment, delay_s=delay_s)) == -9, f"it died {kind}: {moment}"
    assert live(Life(directory=str(tmp_path))) == 0
    assert Artifact.open_at(str(tmp_path)).digest == Artifact.open_at(str(undisturbed)).digest
    left = sorted((tmp_path / "scratch" / "checkpoints").iterdir())
    assert [(folder / MARKER).exists() for folder in left] == [True] * KEPT, "no torn checkpoint is left"


def test_the_stories_have_twenty_deaths_of_every_kind(undisturbed: Path) -> None:
    kinds = Counter(kind for story in stories(json.loads((undisturbed / MOMENTS).read_text())) for kind, _, _ in story)
    assert kinds.total() == 20
    assert set(kinds) == {*KINDS, IN_STEP, IN_ARTIFACT}


def stories(moments: list[str]) -> list[Deaths]:
    """Deaths drawn from the moments of a run: the kinds that came up least go first."""
    rng, used = random.Random(5), Counter[str]()
    windows = _by_save(moments)
    told = []
    for number in range(STORIES):
        deaths: Deaths = []
        chosen = sorted(rng.sample(range(SAVES), 3))
        for save in chosen:
            here = {kind: [m for m in windows[save] if re.match(pattern, m)] for kind, pattern in KINDS.items()}
            kind = min((kind for kind in here if here[kind]), key=lambda kind: (used[kind], rng.random()))
            used[kind] += 1
            deaths.append((kind, rng.choice(here[kind]), 0.0))
        late = [moment for window in windows[chosen[-1] + 1 :] for moment in window]
        if number == STORIES - 1:
            deaths.append((IN_ARTIFACT, rng.choice([m for m in late if m.startswith("write attempt/")]), 0.0))
        else:
            steps = [moment for moment in late if moment.startswith("step ")][:-1]
            deaths.append((IN_STEP, rng.choice(steps), rng.uniform(0.0005, MAX_DELAY_S)))
        told.append(deaths)
    return told


def _by_save(moments: list[str]) -> list[list[str]]:
    """Moments cut where a step follows a save: each part holds the steps that lead to a checkpoint, and its making."""
    parts: list[list[str]] = [[]]
    for moment in moments:
        if moment.startswith("step ") and parts[-1] and not parts[-1][-1].startswith("step "):
            parts.append([])
        parts[-1].append(moment)
    return parts
