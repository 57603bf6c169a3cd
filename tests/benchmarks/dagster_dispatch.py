"""The Dagster half of `python -m infra.dispatch.bench`: plain assets and ours, in turn, in real Dagster on disk.

Prints JSON: keyword arguments of `infra.dispatch.bench.measures.Measure`, one a row.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import psutil

from infra.dispatch.bench.measures import Measure

MODULE = "tests.benchmarks.dagster_project"
PATIENCE_S = 3600.0
LAUNCH = """mutation ($asset: String!, $partitions: [String!]) {
  launchPartitionBackfill(backfillParams: {assetSelection: [{path: [$asset]}], partitionNames: $partitions}) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
  }
}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="seaway-bench-", ignore_cleanup_errors=True) as root:
        os.environ |= {"SEAWAY_BENCH_ROOT": root, "SEAWAY_BENCH_PARTITIONS": str(max(options.rounds, options.partitions, 1))}
        from orchestration.instance import prepare_home
        from tests.benchmarks.dagster_project import FACTORY

        os.environ.pop("DAGSTER_HOME", None)
        prepare_home(FACTORY.profile)
        measures = steps(options.rounds)
        if options.partitions:
            publish_all()
            measures += backfills(Path(root))
    print(json.dumps([asdict(measure) for measure in measures]))
    return 0


def steps(rounds: int) -> list[Measure]:
    """One run of one asset in this process."""
    from tests.benchmarks.dagster_project import PARTITIONS, ours, plain

    alone = Measure("dagster: a plain asset, in process")
    built = Measure("dagster: ours with a no-op job", against=alone.name)
    reused = Measure("dagster: ours, published already (target 1.3 x)", against=alone.name)
    with dg.DagsterInstance.get() as instance:
        _seconds(plain, PARTITIONS.get_first_partition_key(), instance)  # whatever is only made once
        for key in PARTITIONS.get_partition_keys()[:rounds]:
            for measure, asset in ((built, ours), (alone, plain), (reused, ours)):
                measure.values.append(_seconds(asset, key, instance))
    return [alone, reused, built]


def _seconds(asset: dg.AssetsDefinition, key: str | None, instance: dg.DagsterInstance) -> float:
    from tests.benchmarks.dagster_project import FACTORY

    FACTORY.forget()
    began_s = time.perf_counter()
    done = dg.materialize([asset], instance=instance, partition_key=key, resources={"factory": FACTORY})
    assert done.success
    return time.perf_counter() - began_s


def publish_all() -> None:
    """Publish what every partition of `ours` asks for, without a process for each."""
    from infra.artifacts.lease import claim
    from infra.artifacts.provenance import capture
    from ops.hello import HelloConfig, hello
    from tests.benchmarks.dagster_project import FACTORY, PARTITIONS

    store = FACTORY.store
    for key in PARTITIONS.get_partition_keys():
        resolved = FACTORY.resolve("ours", key)
        if resolved.artifact is not None:
            continue
        job, config, uid = FACTORY.job(resolved), HelloConfig(greeting=key), uuid4().hex[:16]
        lease = claim(job.address, uid=uid, after=0)
        out = store.writer(job.address, uid)
        stats = hello(config, out=out)
        provenance = capture(config).model_copy(update={"captured_at": datetime.now(UTC)})
        store.publish(job.address, out, recipe=job.recipe, payload=job.payload, stats=stats, lease=lease, provenance=provenance)


def backfills(root: Path) -> list[Measure]:
    """All partitions by Dagster's daemon, one run each, four at a time: plain, ours, and ours with a restart in the middle."""
    from tests.benchmarks.dagster_project import PARTITIONS

    keys = PARTITIONS.get_partition_keys()
    found: list[Measure] = []
    plain_name = f"dagster: backfill of {len(keys)} plain partitions"
    for asset, restarts in (("plain", False), ("ours", False), ("ours", True)):
        name = f"dagster: backfill of {len(keys)} {'plain' if asset == 'plain' else 'published'} partitions{', restarted' * restarts}"
        seconds, failed = _backfill(root, asset, keys, restarts=restarts)
        found.append(Measure(f"{name} ({failed} failed)", against=None if asset == "plain" else found[0].name, values=[seconds]))
    assert found[0].name.startswith(plain_name)
    return found


def _backfill(root: Path, asset: str, keys: list[str], *, restarts: bool) -> tuple[float, int]:
    reply = root / "reply.json"
    with _daemon(root), dg.DagsterInstance.get() as instance:
        variables = json.dumps({"asset": asset, "partitions": keys})
        began_s = time.perf_counter()
        _tool("dagster-graphql", "-m", MODULE, "-t", LAUNCH, "-v", variables, "-o", str(reply))
        launched: dict[str, Any] = json.loads(reply.read_text())["data"]["launchPartitionBackfill"]
        backfill_id = launched["backfillId"]
        if not restarts:
            return _wait(instance, backfill_id, len(keys), began_s)
        _wait(instance, backfill_id, len(keys) // 2, began_s, to_the_end=False)
    with _daemon(root), dg.DagsterInstance.get() as instance:
        return _wait(instance, backfill_id, len(keys), began_s)


def _wait(instance: dg.DagsterInstance, backfill_id: str, runs: int, began_s: float, *, to_the_end: bool = True) -> tuple[float, int]:
    """Until so many runs have ended; seconds since the launch, and how many failed."""
    while time.perf_counter() - began_s < PATIENCE_S:
        found = instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill_id}))
        ended = [run for run in found if run.is_finished]
        if len(ended) >= runs:
            return time.perf_counter() - began_s, sum(run.status is not dg.DagsterRunStatus.SUCCESS for run in ended)
        time.sleep(0.5)
    raise TimeoutError(f"the backfill {backfill_id} did not end {runs} runs in {PATIENCE_S:.0f} s")


@contextmanager
def _daemon(root: Path) -> Iterator[None]:
    """Dagster's daemon with its code server; both and all their runs are gone afterwards."""
    with (root / "daemon.log").open("ab") as log:
        tool = Path(sys.executable).with_name("dagster-daemon")
        process = psutil.Popen([str(tool), "run", "-m", MODULE], stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield
    finally:
        family = [process, *process.children(recursive=True)]
        process.terminate()
        _, left = psutil.wait_procs(family, timeout=60)
        for survivor in left:
            survivor.kill()
        psutil.wait_procs(left, timeout=10)


def _tool(name: str, *arguments: str) -> None:
    done = subprocess.run([str(Path(sys.executable).with_name(name)), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr.strip()[-500:]}")


if __name__ == "__main__":
    sys.exit(main())
