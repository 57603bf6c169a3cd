"""`python -m infra.dispatch.bench`: what dispatching costs, every side measured in turn in one run.

    --rounds 5          how often each thing is measured
    --engine FILE       also measure this engine: JSON of its config, as `backend:` in a profile ({"kind": "slurm", ...}); may be repeated
    --shared FOLDER     where such an engine's hosts find the store (default: a temporary folder)
    --s3 URL            also publish under this root
    --dagster           also compare with plain Dagster (needs a checkout: `tests.benchmarks.dagster_dispatch`)
    --partitions N      of the backfills that it compares (default 0: none)
    --json              for machines

Ratios hold on a busy machine, since the sides are measured in turn; seconds do not.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from pydantic import TypeAdapter

from infra.artifacts.store import ArtifactStore
from infra.dispatch.backend import EngineUnavailable, JobRejected
from infra.dispatch.bench.dispatching import DispatchBench
from infra.dispatch.bench.measures import Measure, table
from infra.dispatch.bench.publishing import PublishBench
from infra.dispatch.engines.choice import EngineConfig, LocalConfig, connect
from infra.storage.errors import StorageError

DAGSTER_HALF = "tests.benchmarks.dagster_dispatch"
Bench = DispatchBench | PublishBench


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m infra.dispatch.bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", type=Path, action="append", default=[])
    parser.add_argument("--shared", type=Path)
    parser.add_argument("--s3")
    parser.add_argument("--dagster", action="store_true")
    parser.add_argument("--partitions", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="seaway-bench-", dir=options.shared) as folder:
        measures = measured(Path(folder), options)
    if options.dagster:
        measures += dagster_half(options.rounds, options.partitions)
    print(report(measures, options.json))
    return 0


def measured(folder: Path, options: argparse.Namespace) -> list[Measure]:
    """Measure every bench once a round."""
    engines: list[EngineConfig] = [LocalConfig(), *(TypeAdapter(EngineConfig).validate_json(path.read_text()) for path in options.engine)]
    benches: list[Bench] = [
        DispatchBench(engine.kind, ArtifactStore(f"{folder}/{engine.kind}"), connect(engine, folder / "state")) for engine in engines
    ]
    roots = {"local disk": f"{folder}/published", **({"s3": f"{options.s3}/bench-{folder.name}"} if options.s3 else {})}
    benches += [PublishBench(name, ArtifactStore(root)) for name, root in roots.items()]
    for _ in range(options.rounds):
        for bench in benches:
            measure_once(bench)
    return [measure for bench in benches for measure in bench.measures]


def measure_once(bench: Bench) -> None:
    """Once more; an engine or a store that is not there is skipped with what it says."""
    if any(measure.skipped for measure in bench.measures):
        return
    try:
        bench.once()
    except (EngineUnavailable, JobRejected, StorageError, ImportError) as error:
        for measure in bench.measures:
            measure.skipped = str(error)


def dagster_half(rounds: int, partitions: int) -> list[Measure]:
    """What plain Dagster takes for the same, and our assets in it: measured by a process that may import them."""
    command = [sys.executable, "-m", DAGSTER_HALF, "--rounds", str(rounds), "--partitions", str(partitions)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        return [Measure("dagster", skipped=f"{DAGSTER_HALF} ended with {done.returncode}: {last}")]
    return [Measure(**told) for told in json.loads(done.stdout)]


def report(measures: list[Measure], as_json: bool) -> str:
    """Where and when, then every measure."""
    load = psutil.getloadavg()[0] / (psutil.cpu_count() or 1)
    where: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": psutil.cpu_count(),
        "load_per_core": round(load, 1),
        "python": platform.python_version(),
    }
    if as_json:
        others = {measure.name: measure for measure in measures}
        return json.dumps({**where, "measures": [measure.as_json(others) for measure in measures]}, indent=1)
    return f"{where['at']}, {where['cores']} cores with a load of {load:.1f} each, Python {where['python']}\n{table(measures)}"


if __name__ == "__main__":
    sys.exit(main())
