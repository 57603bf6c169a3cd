"""`python -m tests.simulation --seeds 10000`: that many worlds, over `SEAWAY_SIMULATION_JOBS` processes; or one again.

`--seed 1234` runs world 1234 alone and prints its whole history. The exit code is 1 if an invariant is violated.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import batched

from tests.simulation.history import Violation
from tests.simulation.plans import TROUBLES
from tests.simulation.world import World

BATCH = 50


def violations(seeds: tuple[int, ...]) -> list[str]:
    """What is violated in these worlds, each with its history."""
    found = []
    for seed in seeds:
        try:
            World(seed).run()
        except Violation as violation:
            found.append(str(violation))
    return found


def simulate(seeds: range, jobs: int) -> Iterator[str]:
    """The violations of many worlds, as they are found."""
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(violations, batched(seeds, BATCH)):
            yield from found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="run this world alone and print what happens in it")
    parser.add_argument("--trouble", choices=sorted(TROUBLES), default="any", help="with --seed: the kind of fault that is made frequent")
    options = parser.parse_args()
    if options.seed is not None:
        return _tell(options.seed, options.trouble)
    jobs = int(os.environ.get("SEAWAY_SIMULATION_JOBS", os.cpu_count() or 1))
    began, found = time.monotonic(), 0
    for violation in simulate(range(options.first, options.first + options.seeds), jobs):
        found += 1
        print(violation, flush=True)
    seconds = time.monotonic() - began
    print(f"{options.seeds} worlds in {seconds:.0f} s over {jobs} processes, {options.seeds / seconds:.1f} seeds/s; {found} violations")
    return 1 if found else 0


def _tell(seed: int, trouble: str) -> int:
    world = World(seed, trouble)
    try:
        world.run()
    except Violation as violation:
        print(violation)
        return 1
    print(world.story())
    return 0


if __name__ == "__main__":
    sys.exit(main())
