"""The environment of a job's process: what is inherited, and what is the same on every machine."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from infra.dispatch.job import Resources
from infra.supervise.placement import DEVICE_VARIABLE

JAX_ON_CPU: Mapping[str, str] = MappingProxyType(
    {
        # XLA takes its scratch from malloc each step and glibc gives it back each time: 182,000 page faults and 0.5 s of
        # system time a step. With all three set there are none from the third step on, for up to 600 MB of memory.
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "100000000000",
        "MALLOC_ARENA_MAX": "1",
    }
)
"""For `Resources.env` of a job that runs jax on a CPU."""

SHARED_PROGRAMS_VARIABLE = "SEAWAY_COMPILED_SHARED"
"""URL of the place where hosts find the programs that XLA compiled on others (`infra.caches.compilation`)."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS")
SOURCES = Path(__file__).resolve().parents[2]


def environment(resources: Resources, inherited: Mapping[str, str]) -> dict[str, str]:
    """Inherited variables, then a fixed hash seed and as many threads as the job asked for, then the job's own.

    The folder of these packages leads PYTHONPATH: the job runs the code of its dispatcher from any working directory.
    """
    paths = [str(SOURCES), *filter(None, inherited.get("PYTHONPATH", "").split(":"))]
    return {
        **inherited,
        DEVICE_VARIABLE: resources.device,  # so that a supervisor can start its ranks before it has read the spec
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",  # what a killed process printed must be in its log
        "PYTHONPATH": ":".join(dict.fromkeys(paths)),
        **{name: str(resources.cpus) for name in _THREAD_VARIABLES},
        **resources.env,
    }
