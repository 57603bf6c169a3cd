"""`python -m tests.benchmarks.cluster_dispatch`: dispatching on real engines that this starts on loopback, in turn in one run.

    --rounds 5    how often each thing is measured
    --json        for machines

Slurm (one controller, four nodes), Ray (a head, three nodes in a network of their own) and SeaweedFS as S3, beside the
engine of this machine and a local disk: what `python -m infra.dispatch.bench` measures, without a cluster of yours.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

from infra.artifacts.store import ArtifactStore
from infra.dispatch.backend import Backend
from infra.dispatch.bench.__main__ import Bench, measure_once, report
from infra.dispatch.bench.dispatching import DispatchBench
from infra.dispatch.bench.publishing import PublishBench
from infra.dispatch.engines.local import LocalBackend
from infra.dispatch.engines.ray.backend import RayBackend
from infra.dispatch.engines.slurm.backend import SlurmBackend
from tests.infra.dispatch import ray_cluster
from tests.infra.dispatch.slurm_cluster import slurm_cluster
from tests.infra.storage.seaweed import pointed_at, s3_client, s3_environment, seaweed

Place = Callable[[], AbstractContextManager[None]]
"""Where a bench runs: here, or in the network of a cluster."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cluster_dispatch", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ["CI"] = "true"  # a missing server is an error here, and nothing to skip
    with tempfile.TemporaryDirectory(prefix="seaway-bench-") as folder, ExitStack() as servers:
        benches = list(_benches(Path(folder), servers))
        for _ in range(options.rounds):
            for place, bench in benches:
                with place():
                    measure_once(bench)
    print(report([measure for _, bench in benches for measure in bench.measures], options.json))
    return 0


def _benches(folder: Path, servers: ExitStack) -> Iterator[tuple[Place, Bench]]:
    def dispatching(name: str, backend: Backend) -> DispatchBench:
        return DispatchBench(name, ArtifactStore(f"{folder}/{name}"), backend)

    yield nullcontext, dispatching("local", LocalBackend(folder / "state"))
    slurm = servers.enter_context(slurm_cluster())
    yield nullcontext, dispatching("slurm", SlurmBackend(slurm.config(folder / "jobs"), folder / "slurm-state"))
    os.environ["RAY_AUTH_TOKEN"] = ray_cluster.TOKEN
    (folder / "ray-files").mkdir()
    ray = servers.enter_context(ray_cluster.running(folder / "ray-files"))
    with ray.network():
        ray.replace_lost_nodes()
    yield ray.network, dispatching("ray", RayBackend(ray.config()))
    yield nullcontext, PublishBench("local disk", ArtifactStore(f"{folder}/published"))
    server = servers.enter_context(seaweed())
    servers.enter_context(pointed_at(s3_environment(server.endpoint)))
    s3_client(server.endpoint).create_bucket(Bucket="bench")
    yield nullcontext, PublishBench("s3", ArtifactStore("s3://bench/published"))


if __name__ == "__main__":
    raise SystemExit(main())
