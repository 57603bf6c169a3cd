"""Who watches the simulation? A bug is planted into one kernel at a time, and the right invariant must cry out."""

import pytest

from tests.simulation.history import Violation
from tests.simulation.planted import BUGS
from tests.simulation.world import World

pytestmark = pytest.mark.faults

SEEDS = 1000


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_within_a_thousand_worlds(name: str, monkeypatch: pytest.MonkeyPatch):
    bug = BUGS[name]
    bug.plant(monkeypatch)
    violation = first_violation(bug.trouble)
    assert violation is not None, f"{SEEDS} worlds did not notice it"
    assert violation.invariant in bug.found_by, str(violation)
    assert "again: python -m tests.simulation --seed" in str(violation)


def first_violation(trouble: str) -> Violation | None:
    for seed in range(SEEDS):
        try:
            World(seed, trouble).run()
        except Violation as violation:
            return violation
    return None
