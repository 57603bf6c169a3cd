"""The Dagster half of `python -m infra.dispatch.bench`: plain assets and ours, in turn, in real Dagster on disk.

Prints JSON: keyword arguments of `infra.dispatch.bench.measures.Measure`, one a row.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import dagster as dg

from infra.dispatch.bench.measures import Measure
from tests.benchmarks.backfills import Backfilled, backfill

OURS, PLAIN = "tests.benchmarks.dagster_project", "tests.benchmarks.plain_project"
ONE_A_RUN = 200
"""Plain Dagster's backfill with a run for each partition is measured up to so many: a thousand take it an hour."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=0)
    parser.add_argument("--shared", type=int, default=500, help="partitions that share a run, where several do")
    parser.add_argument("--only", choices=SIDES, action="append", help="of the backfills; may be repeated")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="seaway-bench-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        os.environ |= {
            "SEAWAY_BENCH_PARTITIONS": str(max(options.rounds, options.partitions, 1)),
            "SEAWAY_BENCH_SHARED": str(options.shared),
            "SEAWAY_PROFILE": str(_profile(root, options.shared)),
        }
        os.environ.pop("DAGSTER_HOME", None)
        from orchestration.instance import prepare_home
        from tests.benchmarks.dagster_project import FACTORY

        prepare_home(FACTORY.profile)
        measures = steps(options.rounds) if options.rounds else []
        if options.partitions:
            publish_all()
            measures += backfills(root, options.shared, options.only or list(SIDES))
    print(json.dumps([asdict(measure) for measure in measures]))
    return 0


def _profile(root: Path, shared: int) -> Path:
    """The demo, moved into a folder of its own; as many runs at once as plain Dagster's queue lets go."""
    moved = {"root": f"{root}/artifacts", "state": f"{root}/jobs", "dagster_home": f"{root}/dagster"}
    path = root / "profile.yaml"
    path.write_text(json.dumps({"extends": "demo", "storage": moved, "concurrency": {"runs": 10, "partitions": shared}}))
    return path


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


SIDES = {
    "plain": ("plain", "plain, a run each", False),
    "shared": ("plain_shared", "plain, sharing runs", False),
    "ours": ("ours", "published", False),
    "shared-restarted": ("plain_shared", "plain, sharing runs, restarted", True),
    "ours-restarted": ("ours", "published, restarted", True),
}
"""Side -> asset, what it is, and whether the servers are killed in the middle."""


def backfills(root: Path, shared: int, sides: list[str]) -> list[Measure]:
    """All partitions by Dagster's daemon: plain Dagster as it comes, and ours; with and without a restart in the middle."""
    from tests.benchmarks.dagster_project import FACTORY, PARTITIONS

    keys = list(PARTITIONS.get_partition_keys())
    rows: list[Measure] = []
    for side in sides:
        asset, what, restart = SIDES[side]
        row = Measure(f"dagster: {len(keys)} partitions, {what}", target=60.0 if asset == "ours" and len(keys) == 1000 else None)
        rows.append(row)
        if side == "plain" and len(keys) > ONE_A_RUN:
            row.skipped = f"a run each is measured up to {ONE_A_RUN}"
            continue
        home = Path(FACTORY.profile.storage.dagster_home) if asset == "ours" else _plain_home(root)
        done = backfill(home, OURS if asset == "ours" else PLAIN, asset, keys, restart=restart)
        row.values.append(done.seconds)
        row.name += f" ({_told(done)})"
        row.against = next((other.name for other in rows if "plain" in other.name and other.values and other is not row), None)
    return rows


def _told(done: Backfilled) -> str:
    return f"{done.runs} runs, {done.failed} failed, {done.stuck} stuck, {done.status} told after {done.told_s:.0f} s"


def _plain_home(root: Path) -> Path:
    """Dagster's settings as they come, but for what it would send home."""
    home = root / "plain"
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")
    return home


if __name__ == "__main__":
    sys.exit(main())
