"""The distributed engine on a real Ray cluster: the bytes of the embedded one, also when a node is lost in mid-shuffle."""

import pickle
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.artifacts.store import ArtifactStore
from infra.artifacts.writer import Writer
from infra.dispatch.budgets import Budgets
from infra.dispatch.dispatcher import Dispatcher
from infra.dispatch.engines.ray.backend import RayBackend
from infra.dispatch.engines.ray.jobs_api import JobsApi
from infra.dispatch.job import Resources
from ops.dataflow.config import Execution
from ops.dataflow.errors import PoisonedShardsError
from ops.dedup.config import ExactDedupConfig
from ops.dedup.exact import exact_duplicates
from tests.builders import run_program
from tests.infra.dispatch import ray_cluster
from tests.infra.dispatch.builders import job_of
from tests.infra.dispatch.ray_cluster import RayCluster
from tests.ops.dataflow.programs import run
from tests.ops.dataflow.stages import Gate, MeasureTexts, SumGroups, begun, input_of, measure_all, rows_table, sum_all
from tests.ops.normalized import normalized

pytestmark = pytest.mark.ray

EMBEDDED = Execution()
DISTRIBUTED = Execution(engine="ray", workers=3, memory_bytes=1 << 30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with ray_cluster.running(tmp_path_factory.mktemp("ray")) as cluster:
        yield cluster


def wait_for(condition: Callable[[], bool], what: str, deadline_s: float) -> None:
    """Look until it holds; Ray on a busy machine takes longer than anything else here."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"waited {deadline_s:.0f} s for {what}"
        time.sleep(0.05)


class Jobs:
    """Calls functions in the driver of a Ray job."""

    def __init__(self, cluster: RayCluster, directory: Path) -> None:
        self.cluster, self._directory = cluster, directory
        self._api = JobsApi(cluster.config())
        self._count = 0

    def start(self, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        """Start a call; what comes back waits for its result."""
        self._count += 1
        call, out = self._directory / f"call-{self._count}", self._directory / f"out-{self._count}"
        call.write_bytes(pickle.dumps((function, arguments)))
        name = f"{self._directory.name}-{self._count}".replace("_", "-")
        command = [sys.executable, "-P", "-m", "tests.ops.dataflow.ray_drive", str(call), str(out)]
        env = {"PYTHONPATH": self.cluster.config().sources or "", "OMP_NUM_THREADS": "1"}
        self._api.submit(name, f"exec {shlex.join(command)}", env=env, metadata={})

        def result() -> Any:
            def is_over() -> bool:
                if out.exists():
                    return True
                info = self._api.job(name)
                assert info is None or not info.is_over or out.exists(), self._api.log(name)[-3000:]
                return False

            wait_for(is_over, "the Ray job", 150)
            given = pickle.loads(out.read_bytes())
            if isinstance(given, Exception):
                raise given
            return given

        return result

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.start(function, *arguments)()


@pytest.fixture
def jobs(cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setenv("RAY_AUTH_TOKEN", ray_cluster.TOKEN)
    with cluster.network():
        yield Jobs(cluster, tmp_path)


def test_a_job_of_two_shuffles_spreads_over_its_cluster_and_gives_the_bytes_of_this_machine(tmp_path: Path, jobs: Jobs) -> None:
    store, recipe = ArtifactStore(str(tmp_path / "store")), "0" * 16
    texts = {name: [f"{n}" for n in range(start, start + 60)] for name, start in (("a", 0), ("b", 30), ("c", 45))}
    sources = {
        name: normalized(tmp_path / f"store/normalized/{name}/{recipe}", rows, held_out=rows[-3:], shards=2) for name, rows in texts.items()
    }
    resources = Resources(device="cpu", memory_bytes=1 << 30)
    job = job_of(store, exact_duplicates, ExactDedupConfig(execution=DISTRIBUTED), inputs={"normalized": sources}, resources=resources)
    there = Dispatcher(store, RayBackend(jobs.cluster.config()), Budgets(infrastructure=0)).run(job).artifact
    here = run_program(exact_duplicates, ExactDedupConfig(execution=EMBEDDED), tmp_path / "here", normalized=sources)
    assert there.digest == here.digest
    assert there.stats == here.stats


@pytest.mark.parametrize("names", [("normalize", "store"), ("extract", "contamination", "rules")])
def test_programs_give_the_bytes_of_this_machine(tmp_path: Path, jobs: Jobs, names: tuple[str, ...]) -> None:
    assert jobs.call(digests, tmp_path / "there", names, DISTRIBUTED) == digests(tmp_path / "here", names, EMBEDDED)


def digests(directory: Path, names: tuple[str, ...], execution: Execution) -> list[str]:
    return [run(name, directory / name, execution).digest for name in names]


def test_a_node_killed_in_mid_shuffle_costs_time_only(tmp_path: Path, jobs: Jobs) -> None:
    shards = input_of(tmp_path / "in", [rows_table(2_000, seed, hot=0.5) for seed in range(6)])
    expected, _ = sum_all(tmp_path / "here", shards, SumGroups(str(tmp_path / "journal-here")), EMBEDDED)
    journal, gate = tmp_path / "journal", Gate(str(tmp_path / "gate"))
    result = jobs.start(sum_all, tmp_path / "there", shards, SumGroups(str(journal), (gate,)), DISTRIBUTED)
    wait_for(lambda: bool(begun(journal)), "the first bucket: every source is shuffled", 120)
    jobs.cluster.kill_node(jobs.cluster.nodes[0])
    Path(gate.path).touch()
    out, done = result()
    assert out.files == expected.files
    assert done.tally["rows"] == 12_000
    jobs.cluster.replace_lost_nodes()


def test_poison_is_named_and_the_rest_committed(tmp_path: Path, jobs: Jobs) -> None:
    tables = [rows_table(150, seed) for seed in range(3)]
    bad = tables[1]["text"][77].as_py()
    tables[0], tables[2] = (table.set_column(3, "text", [["fine"] * 150]) for table in (tables[0], tables[2]))
    shards, journal = input_of(tmp_path / "in", tables), tmp_path / "journal"
    with pytest.raises(PoisonedShardsError, match=rf"1 of 3 .*{shards[1].name}, row 77 \(id 0001"):
        jobs.call(measure_all, tmp_path / "there", shards, MeasureTexts(str(journal), poison=bad), DISTRIBUTED)
    out, _ = jobs.call(measure_all, tmp_path / "there", shards, MeasureTexts(str(journal)), DISTRIBUTED, "b")
    expected, _ = measure_all(tmp_path / "here", shards, MeasureTexts(str(tmp_path / "journal-here")), EMBEDDED)
    assert out.files == expected.files
    assert {index: count for index, count in Counter(begun(journal)).items() if count == 1} == {"measure 0": 1, "measure 2": 1}
    assert isinstance(out, Writer)
