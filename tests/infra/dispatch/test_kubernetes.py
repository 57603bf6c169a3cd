"""The Kubernetes engine on an emulated cluster whose kubelets really run the pods' commands. No real cluster is met here."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from infra.artifacts.lease import claim
from infra.artifacts.manifest import MANIFEST_NAME
from infra.artifacts.store import ArtifactStore
from infra.dispatch.backend import EngineUnavailable, Handle, JobRejected
from infra.dispatch.budgets import Budgets
from infra.dispatch.dispatcher import Dispatcher
from infra.dispatch.endings import End, Ending
from infra.dispatch.engines.choice import EngineConfig, connect
from infra.dispatch.engines.kubernetes.backend import KubernetesBackend
from infra.dispatch.engines.kubernetes.config import Volume
from infra.dispatch.job import Attempt, Job, Resources, mark_cancelled
from tests.infra.dispatch.builders import job_of, processes_of, wait_for
from tests.infra.dispatch.kubernetes_api import Fault
from tests.infra.dispatch.kubernetes_cluster import Cluster, cluster
from tests.infra.dispatch.kubernetes_schemas import problems
from tests.infra.dispatch.programs import CountConfig, FaultConfig, count, fail

QUEUE = {"queues": {"interactive": "seaway"}}


@pytest.fixture
def queue(kubernetes: Cluster) -> Cluster:
    """The cluster, with a LocalQueue for the usual band."""
    kubernetes.api.put("localqueues", {"metadata": {"name": "seaway", "namespace": "default"}})
    return kubernetes


def counting(tmp_path: Path, gate: Path | None = None, device: str = "cpu", **resources: Any) -> Job:
    """A job that waits at the gate, if there is one."""
    config = CountConfig(gate=None if gate is None else str(gate))
    return job_of(ArtifactStore(str(tmp_path / "store")), count, config, resources=Resources(device=device, **resources))


def submit(backend: KubernetesBackend, job: Job, uid: str = "1" * 16) -> Handle:
    claim(job.address, uid=uid, after=0)
    return backend.submit_or_attach(job, Attempt(1, uid))


def end_of(backend: KubernetesBackend, handle: Handle) -> End:
    return wait_for(lambda: backend.poll(handle).end, "the end of the attempt")


def arrivals(gate: Path) -> list[Path]:
    return list(gate.glob("worker-*"))


def test_a_gang_runs_as_one_set_with_a_pod_a_host(kubernetes: Cluster, tmp_path: Path):
    backend, job = KubernetesBackend(kubernetes.config()), counting(tmp_path, device="cpux2")
    handle = submit(backend, job)
    assert end_of(backend, handle).ending is Ending.SUCCEEDED
    assert len(kubernetes.api.all("jobsets")) == 1
    assert len(list(Path(job.address).glob(".attempts/000001/hosts/*.json"))) == 2


def test_a_failure_of_one_host_is_the_gangs_and_no_peers(kubernetes: Cluster, tmp_path: Path):
    job = job_of(ArtifactStore(str(tmp_path / "store")), fail, FaultConfig(fault="raise"), resources=Resources(device="cpux2"))
    backend = KubernetesBackend(kubernetes.config())
    handle = submit(backend, job)
    assert end_of(backend, handle).ending is Ending.APPLICATION_ERROR
    assert "the program's own mistake" in backend.logs(handle, 20)


def test_an_image_without_seaway_is_no_loss_of_a_node(kubernetes: Cluster, tmp_path: Path):
    backend = KubernetesBackend(kubernetes.config(python="/bin/false"))
    end = end_of(backend, submit(backend, counting(tmp_path, device="cpux3")))
    assert end.ending is Ending.APPLICATION_ERROR
    assert "exited with 1 and left no record" in end.what


@pytest.mark.parametrize("what", ["hang", "lose the reply"])
def test_a_create_without_an_answer_is_asked_again_and_starts_once(kubernetes: Cluster, tmp_path: Path, gate: Path, what: Any):
    kubernetes.api.faults = [Fault("POST", "jobsets", status) for status in (500, 503, 429, 401)] + [Fault("POST", "jobsets", what)]
    backend, job = KubernetesBackend(kubernetes.config(request_timeout_s=1.0)), counting(tmp_path, gate)
    for _ in range(5):
        with pytest.raises(EngineUnavailable):
            submit(backend, job)
    handle = submit(backend, job)
    wait_for(lambda: arrivals(gate), "the worker")
    (gate / "open").touch()
    assert end_of(backend, handle).ending is Ending.SUCCEEDED
    assert len(arrivals(gate)) == 1


def test_a_look_without_an_answer_concludes_nothing(kubernetes: Cluster, tmp_path: Path, gate: Path):
    backend = KubernetesBackend(kubernetes.config(request_timeout_s=1.0))
    handle = submit(backend, counting(tmp_path, gate))
    wait_for(lambda: arrivals(gate), "the worker")
    faults: list[Any] = ["hang", "lose the reply", 500, 429, 403]
    for plural in ("jobsets", "pods"):
        for what in faults:
            kubernetes.api.faults = [Fault("GET", plural, what)]
            with pytest.raises(EngineUnavailable):
                backend.poll(handle)
            assert backend.poll(handle).phase == "running"
    assert backend.cancel(handle)


def test_a_server_that_is_not_there_is_away(tmp_path: Path):
    with cluster() as gone:
        backend = KubernetesBackend(gone.config())
    with pytest.raises(EngineUnavailable):
        backend.poll(Handle("counted-0123456789ab-a1", Attempt(1, "1" * 16)))


def test_a_manifest_that_the_server_finds_invalid_is_refused_in_its_words(kubernetes: Cluster, tmp_path: Path):
    config = kubernetes.config(volumes=(Volume(name="data", mount_path="/data", source={"persistentVolumeClaims": {}}),))
    with pytest.raises(JobRejected, match=r"counted: cluster emulated refused it \(422\): .*persistentVolumeClaims"):
        submit(KubernetesBackend(config), counting(tmp_path))


def test_a_missing_permission_is_refused_in_the_servers_words(kubernetes: Cluster, tmp_path: Path):
    kubernetes.api.faults.append(Fault("POST", "jobsets", 403))
    with pytest.raises(JobRejected, match=r"refused it \(403\): planned by the test"):
        submit(KubernetesBackend(kubernetes.config()), counting(tmp_path))


def test_a_cluster_without_jobset_is_named_as_such(kubernetes: Cluster, tmp_path: Path):
    del kubernetes.api.groups["jobsets"]
    with pytest.raises(JobRejected, match="is JobSet installed there"):
        submit(KubernetesBackend(kubernetes.config()), counting(tmp_path))


def test_a_server_that_has_forgotten_jobset_concludes_nothing(kubernetes: Cluster, tmp_path: Path, gate: Path):
    backend = KubernetesBackend(kubernetes.config())
    handle = submit(backend, counting(tmp_path, gate))
    wait_for(lambda: arrivals(gate), "the worker")
    group = kubernetes.api.groups.pop("jobsets")
    with pytest.raises(EngineUnavailable, match="404 page not found"):
        backend.poll(handle)
    kubernetes.api.groups["jobsets"] = group
    assert backend.poll(handle).phase == "running"
    assert backend.cancel(handle) is True


def test_a_store_that_no_pod_can_see_is_refused(kubernetes: Cluster, tmp_path: Path):
    with pytest.raises(JobRejected, match="a folder of this machine, which no pod sees; use an s3:// root"):
        submit(KubernetesBackend(kubernetes.config(volumes=())), counting(tmp_path))


def test_a_queue_that_does_not_exist_is_refused(kubernetes: Cluster, tmp_path: Path):
    backend, job = KubernetesBackend(kubernetes.config(**QUEUE)), counting(tmp_path)
    with pytest.raises(JobRejected, match="no Kueue LocalQueue seaway for band interactive"):
        submit(backend, job)
    del kubernetes.api.groups["localqueues"]  # no Kueue at all
    with pytest.raises(JobRejected, match="no Kueue LocalQueue seaway for band interactive"):
        submit(backend, job)


def test_a_missing_client_says_what_to_install(kubernetes: Cluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(JobRejected, match=r"pip install 'seaway\[kubernetes\]'"):
        KubernetesBackend(kubernetes.config())


def test_credentials_that_are_not_there_are_named(kubernetes: Cluster, tmp_path: Path):
    with pytest.raises(JobRejected, match=r"can't connect by .*nothing\.yaml"):
        KubernetesBackend(kubernetes.config(kubeconfig=str(tmp_path / "nothing.yaml")))
    with pytest.raises(JobRejected, match="can't connect by the pod's service account"):
        KubernetesBackend(kubernetes.config(in_cluster=True))


def test_a_profile_names_the_engine_by_its_kind(kubernetes: Cluster, tmp_path: Path):
    told = kubernetes.config().model_dump(mode="json")
    engine = TypeAdapter[EngineConfig](EngineConfig).validate_python(told)
    assert connect(engine, tmp_path).identity == "kubernetes:emulated/default"


def test_knowing_the_engine_imports_no_client():
    code = "import sys, infra.dispatch.engines.choice, infra.dispatch.engines.kubernetes.backend; assert 'kubernetes' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_job_waits_until_kueue_admits_it(queue: Cluster, tmp_path: Path, gate: Path):
    queue.admits = False
    backend = KubernetesBackend(queue.config(**QUEUE))
    handle = submit(backend, counting(tmp_path, gate))
    wait_for(lambda: queue.api.all("workloads"), "Kueue's workload")
    assert backend.poll(handle).phase == "pending"
    assert queue.api.all("pods") == []
    queue.admits = True
    wait_for(lambda: backend.poll(handle).phase == "running", "the pods")
    (gate / "open").touch()
    assert end_of(backend, handle).ending is Ending.SUCCEEDED


def test_a_preemption_ends_the_attempt_and_its_set(queue: Cluster, tmp_path: Path, gate: Path):
    backend = KubernetesBackend(queue.config(**QUEUE))
    handle = submit(backend, counting(tmp_path, gate, device="cpux2"))
    wait_for(lambda: arrivals(gate), "the workers")
    queue.preempt()
    assert problems(queue.api.all("workloads")[0], "kueue-v1beta1-workload") == []
    end = end_of(backend, handle)
    assert end.ending is Ending.PREEMPTED
    assert end.what == "Kueue evicted it: Preempted: Preempted to accommodate a workload of higher priority"
    assert queue.api.all("jobsets") == []
    assert processes_of(tmp_path) == []
    assert backend.submit_or_attach(counting(tmp_path, gate, device="cpux2"), handle.attempt) == handle
    assert queue.api.all("jobsets") == []


def test_a_gang_that_kueue_starts_again_unseen_does_not_run_again(queue: Cluster, tmp_path: Path, gate: Path):
    backend = KubernetesBackend(queue.config(**QUEUE))
    handle = submit(backend, counting(tmp_path, gate))
    wait_for(lambda: arrivals(gate), "the worker")
    queue.preempt()
    wait_for(lambda: not queue.api.all("pods"), "the eviction")
    queue.readmit()
    assert end_of(backend, handle).ending is Ending.PREEMPTED
    assert len(arrivals(gate)) == 1


def test_a_lost_node_that_kueue_reports_is_no_preemption(queue: Cluster, tmp_path: Path, gate: Path):
    backend = KubernetesBackend(queue.config(**QUEUE))
    handle = submit(backend, counting(tmp_path, gate))
    wait_for(lambda: arrivals(gate), "the worker")
    queue.preempt("NodeFailures")
    assert end_of(backend, handle).ending is Ending.NODE_LOST


def test_an_eviction_before_anything_ran_is_free_and_waits_on(queue: Cluster, tmp_path: Path):
    queue.admits = False
    backend = KubernetesBackend(queue.config(**QUEUE))
    handle = submit(backend, counting(tmp_path))
    wait_for(lambda: queue.api.all("workloads"), "Kueue's workload")
    queue.preempt("PodsReadyTimeout")
    assert backend.poll(handle).phase == "pending"
    queue.readmit()
    assert end_of(backend, handle).ending is Ending.SUCCEEDED


def test_a_workload_that_kueue_gives_up_will_never_run(queue: Cluster, tmp_path: Path):
    queue.admits = False
    backend = KubernetesBackend(queue.config(**QUEUE))
    handle = submit(backend, counting(tmp_path))
    wait_for(lambda: queue.api.all("workloads"), "Kueue's workload")
    queue.deactivate()
    end = end_of(backend, handle)
    assert end.ending is Ending.UNSCHEDULABLE
    assert "exceeded the maximum number of re-queuing retries" in end.what


def test_a_drained_node_is_a_preemption(kubernetes: Cluster, tmp_path: Path, gate: Path):
    backend = KubernetesBackend(kubernetes.config())
    handle = submit(backend, counting(tmp_path, gate, device="cpux2"))
    wait_for(lambda: arrivals(gate), "the workers")
    kubernetes.drain(1)
    assert end_of(backend, handle).ending is Ending.PREEMPTED
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("host", [0, 1])
def test_a_lost_node_is_no_fault_of_its_peers(kubernetes: Cluster, tmp_path: Path, gate: Path, host: int):
    backend = KubernetesBackend(kubernetes.config())
    handle = submit(backend, counting(tmp_path, gate, device="cpux2"))
    wait_for(lambda: arrivals(gate), "the workers")
    kubernetes.lose_node(host)
    assert end_of(backend, handle).ending is Ending.NODE_LOST


def test_a_pod_that_dies_for_ever_on_a_dead_node_is_given_up(kubernetes: Cluster, tmp_path: Path, gate: Path):
    offset_s = [0.0]
    backend = KubernetesBackend(kubernetes.config(lost_patience_s=900), clock=lambda: time.monotonic() + offset_s[0])
    handle = submit(backend, counting(tmp_path, gate))
    wait_for(lambda: arrivals(gate), "the worker")
    kubernetes.lose_node(0, collected=False)
    assert backend.poll(handle).phase == "running"
    offset_s[0] = 1000.0
    end = end_of(backend, handle)
    assert end.ending is Ending.NODE_LOST
    assert "DeletionByTaintManager" in end.what


def test_a_kill_at_the_memory_limit_is_named(kubernetes: Cluster, tmp_path: Path, gate: Path):
    backend = KubernetesBackend(kubernetes.config())
    handle = submit(backend, counting(tmp_path, gate, device="cpux2"))
    wait_for(lambda: arrivals(gate), "the workers")
    kubernetes.kill_for_memory(1)
    end = end_of(backend, handle)
    assert end.ending is Ending.OUT_OF_MEMORY
    assert "host 1" in end.what


def test_a_killed_supervisor_is_the_cause_and_not_what_the_job_then_ends(kubernetes: Cluster, tmp_path: Path, gate: Path):
    backend = KubernetesBackend(kubernetes.config())
    handle = submit(backend, counting(tmp_path, gate, device="cpux2"))
    wait_for(lambda: arrivals(gate), "the workers")
    kubernetes.kill(1)
    end = end_of(backend, handle)
    assert end.ending is Ending.SUPERVISOR_LOST
    assert "exited with 137" in end.what


def test_an_image_that_cannot_be_pulled_is_given_up_with_the_kubelets_words(kubernetes: Cluster, tmp_path: Path):
    kubernetes.nodes.broken_images.add("seaway:test")
    offset_s = [0.0]
    backend = KubernetesBackend(kubernetes.config(start_patience_s=600), clock=lambda: time.monotonic() + offset_s[0])
    handle = submit(backend, counting(tmp_path))
    wait_for(lambda: "containerStatuses" in kubernetes.pod(0)["status"] if kubernetes.api.all("pods") else False, "the first pull")
    assert backend.poll(handle).phase == "pending"
    offset_s[0] = 700.0
    end = end_of(backend, handle)
    assert end.ending is Ending.UNSCHEDULABLE
    assert 'ImagePullBackOff: Back-off pulling image "seaway:test"' in end.what


def test_a_set_that_somebody_deletes_ends_as_its_hosts_say(kubernetes: Cluster, tmp_path: Path, gate: Path):
    backend = KubernetesBackend(kubernetes.config())
    handle = submit(backend, counting(tmp_path, gate))
    wait_for(lambda: arrivals(gate), "the worker")
    with kubernetes.api.lock:
        kubernetes.api.all("jobsets")[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    end = end_of(backend, handle)
    assert end.ending is Ending.PREEMPTED
    assert "nobody had cancelled" in end.what


def test_an_attempt_whose_set_vanished_goes_on_while_a_pod_is_left_and_is_lost_then(kubernetes: Cluster, tmp_path: Path, gate: Path):
    backend = KubernetesBackend(kubernetes.config())
    handle = submit(backend, counting(tmp_path, gate))
    wait_for(lambda: arrivals(gate), "the worker")
    kubernetes.api.remove("jobsets", kubernetes.api.all("jobsets")[0])
    assert backend.poll(handle).phase == "running"
    kubernetes.lose_node(0)
    assert end_of(backend, handle).ending is Ending.NODE_LOST
    assert KubernetesBackend(kubernetes.config()).poll(handle).end is not None


def test_an_expired_set_is_not_started_again_and_its_end_stays(kubernetes: Cluster, tmp_path: Path, gate: Path):
    (gate / "open").touch()
    backend, job = KubernetesBackend(kubernetes.config()), counting(tmp_path, gate)
    handle = submit(backend, job)
    end = end_of(backend, handle)
    with kubernetes.api.lock:
        kubernetes.api.all("jobsets")[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    wait_for(lambda: not kubernetes.api.all("jobsets"), "the set's removal")
    later = KubernetesBackend(kubernetes.config())
    assert later.submit_or_attach(job, handle.attempt) == handle
    assert later.poll(handle).end == end
    assert len(arrivals(gate)) == 1


def test_a_cancelled_attempt_is_not_queued_again(kubernetes: Cluster, tmp_path: Path):
    backend, job = KubernetesBackend(kubernetes.config()), counting(tmp_path)
    claim(job.address, uid="1" * 16, after=0)
    mark_cancelled(job.address, 1)
    handle = backend.submit_or_attach(job, Attempt(1, "1" * 16))
    assert backend.poll(handle).phase == "ended"
    assert kubernetes.api.all("jobsets") == []


def test_another_stores_set_of_the_same_name_makes_room(kubernetes: Cluster, tmp_path: Path, gate: Path):
    backend, job = KubernetesBackend(kubernetes.config()), counting(tmp_path, gate)
    submit(backend, job)
    wait_for(lambda: len(arrivals(gate)) == 1, "the old store's worker")
    (tmp_path / "store").rename(tmp_path / "old")
    handle = submit(backend, job, uid="2" * 16)
    assert "1" * 16 not in {pod["metadata"]["labels"]["seaway/uid"] for pod in kubernetes.api.all("pods")}
    wait_for(lambda: len(arrivals(gate)) == 2, "the new store's worker")
    (gate / "open").touch()
    wait_for(lambda: (Path(job.address) / MANIFEST_NAME).exists(), "the new store's artifact")
    assert backend.cancel(handle) is True


def test_a_cancel_during_an_outage_is_not_confirmed(kubernetes: Cluster, tmp_path: Path, gate: Path):
    backend = KubernetesBackend(kubernetes.config())
    handle = submit(backend, counting(tmp_path, gate))
    wait_for(lambda: arrivals(gate), "the worker")
    kubernetes.api.faults.append(Fault("DELETE", "jobsets", 500))
    with pytest.raises(EngineUnavailable):
        backend.cancel(handle)
    assert backend.poll(handle).phase == "running"
    assert backend.cancel(handle) is True


def test_a_disruption_budget_comes_and_goes_with_a_gang_that_is_not_preemptible(kubernetes: Cluster, tmp_path: Path, gate: Path):
    backend = KubernetesBackend(kubernetes.config())
    handle = submit(backend, counting(tmp_path, gate, device="cpux2", preemptible=False))
    assert [budget["spec"]["minAvailable"] for budget in kubernetes.api.all("poddisruptionbudgets")] == [2]
    assert backend.cancel(handle) is True
    assert kubernetes.api.all("poddisruptionbudgets") == []


def test_a_gang_whose_disruption_budget_is_refused_does_not_run_without(kubernetes: Cluster, tmp_path: Path):
    kubernetes.api.faults = [Fault("POST", "poddisruptionbudgets", 403)]
    with pytest.raises(JobRejected, match=r"refused it \(403\)"):
        submit(KubernetesBackend(kubernetes.config()), counting(tmp_path, preemptible=False))
    wait_for(lambda: not kubernetes.api.all("jobsets"), "the set's removal")


def test_polls_in_quick_succession_ask_the_cluster_once(kubernetes: Cluster, tmp_path: Path, gate: Path):
    backend = KubernetesBackend(kubernetes.config(poll_s=3600))
    handle = submit(backend, counting(tmp_path, gate))
    backend.poll(handle)
    asked = len(kubernetes.api.requests)
    for _ in range(10):
        backend.poll(handle)
    assert len(kubernetes.api.requests) == asked
    assert backend.cancel(handle) is True


def test_a_preempted_job_goes_on_in_a_new_attempt(queue: Cluster, tmp_path: Path, gate: Path):
    job = counting(tmp_path, gate)
    dispatcher = Dispatcher(ArtifactStore(str(tmp_path / "store")), KubernetesBackend(queue.config(**QUEUE)), Budgets(backoff_s=0.01))
    outcomes: list[Any] = []
    run = threading.Thread(target=lambda: outcomes.append(dispatcher.run(job)))
    run.start()
    wait_for(lambda: arrivals(gate), "the first attempt's worker")
    queue.preempt()
    wait_for(lambda: len(arrivals(gate)) == 2, "the second attempt's worker")
    (gate / "open").touch()
    run.join()
    assert [outcome.attempts for outcome in outcomes] == [2]
