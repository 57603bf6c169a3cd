"""Dispatchers, leases, gangs and publication under faults: real code on simulated storage, engines and time.

`make simulate SEEDS=10000` runs more worlds than these. A violation prints the world's history and how to run it again.
"""

import os

import pytest

from tests.simulation.world import World

SEEDS = int(os.environ.get("SEAWAY_SIMULATION_SEEDS", "200"))
BLOCK = 20


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK), ids=lambda first: f"worlds-{first}-to-{first + BLOCK - 1}")
def test_whatever_fails_every_invariant_holds(first: int):
    for seed in range(first, min(first + BLOCK, SEEDS)):
        World(seed).run()


def test_a_world_is_the_same_each_time_it_is_run():
    def told(seed: int) -> str:
        world = World(seed)
        world.run()
        return str(world.history)

    assert [told(seed) for seed in range(10)] == [told(seed) for seed in range(10)]


def test_the_worlds_hold_every_kind_of_trouble():
    """Faults that never strike prove nothing: the history of these few worlds must show each."""
    worlds = [World(seed) for seed in range(60)]
    for world in worlds:
        world.run()
    told = "\n".join(str(world.history) for world in worlds)
    for trouble in ("crash at host", "node at host", "preemption at host", "is killed", "was told: built", "was told: reused", "cancelled"):
        assert trouble in told, f"no world had: {trouble}"
    assert {world.plan.hosts for world in worlds} == {1, 2, 3, 4}
    assert any(world.failures for world in worlds)
