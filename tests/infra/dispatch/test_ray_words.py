"""What a job asks of Ray, and what Ray's words about a job mean: decided without a cluster."""

import pytest
from pydantic import ValidationError

from infra.artifacts.store import ArtifactStore
from infra.dispatch.endings import EXIT_CODES, Ending
from infra.dispatch.engines.choice import connect
from infra.dispatch.engines.ray.backend import RayBackend
from infra.dispatch.engines.ray.config import NodePool, RayConfig
from infra.dispatch.engines.ray.placement import Gang, Node, gang_of, shortage
from infra.dispatch.engines.ray.words import HOST_LOST, HOST_OUT_OF_MEMORY, SUPERVISOR_KILLED, JobInfo, engine_word
from infra.dispatch.job import GIB, Job, Resources
from tests.infra.dispatch.builders import job_of
from tests.infra.dispatch.programs import CountConfig, count

CLUSTER = RayConfig(address="http://ray-head:8265/")


def job(store: ArtifactStore, **resources: object) -> Job:
    return job_of(store, count, CountConfig(), resources=Resources.model_validate(resources))


def test_a_profile_connects_to_a_cluster_by_its_address_or_its_name(tmp_path):
    backend = connect(CLUSTER, tmp_path)
    assert isinstance(backend, RayBackend)
    assert backend.identity == "ray:http://ray-head:8265"
    assert connect(CLUSTER.model_copy(update={"cluster": "big"}), tmp_path).identity == "ray:big"
    with pytest.raises(ValidationError, match="address"):
        RayConfig(address="ray-head:10001")


@pytest.mark.parametrize(
    ("device", "bundle", "labels", "domain"),
    [
        ("cpux3", {"CPU": 2}, {}, None),
        ("h100x2", {"CPU": 4, "GPU": 2}, {"ray.io/accelerator-type": "H100"}, None),
        ("h100x16", {"CPU": 16, "GPU": 8}, {"ray.io/accelerator-type": "H100"}, None),
        ("gb200x48", {"CPU": 8, "GPU": 4}, {"ray.io/accelerator-type": "GB200"}, "ray.io/gpu-domain"),
        ("v5p-32", {"CPU": 2, "TPU": 4}, {"ray.io/tpu-pod-type": "v5p-32"}, "ray.io/tpu-slice-name"),
        ("v5e-16", {"CPU": 2, "TPU": 4}, {"ray.io/tpu-pod-type": "v5litepod-16"}, "ray.io/tpu-slice-name"),
        ("v5e-1", {"CPU": 2, "TPU": 1}, {"ray.io/tpu-pod-type": "v5litepod-1"}, None),
    ],
)
def test_a_host_of_a_gang_is_a_bundle(
    store: ArtifactStore, device: str, bundle: dict[str, float], labels: dict[str, str], domain: str | None
):
    gang = gang_of(job(store, device=device, cpus=2, memory_bytes=GIB), CLUSTER)
    assert gang.bundle == {**bundle, "memory": GIB}
    assert (gang.labels, gang.domain_label, gang.strategy) == (labels, domain, "STRICT_SPREAD")


def test_bands_regions_and_pools_become_labels_and_resources(store: ArtifactStore):
    cluster = CLUSTER.model_copy(
        update={
            "bands": {"production": {"pool": "reserved"}},
            "on_demand_labels": {"market": "on-demand"},
            "pools": {"h100": NodePool(resource="hopper", resources={"licence": 1.0}, labels={"gpu": "h100"})},
            "strategy": "PACK",
        }
    )
    gang = gang_of(job(store, device="h100x8", memory_bytes=GIB, band="production", preemptible=False, region="eu"), cluster)
    assert gang.labels == {"gpu": "h100", "pool": "reserved", "market": "on-demand", "ray.io/availability-region": "eu"}
    assert gang.bundle == {"CPU": 8, "memory": GIB, "licence": 1, "hopper": 8}
    assert gang.strategy == "PACK"


def test_a_gang_fits_if_enough_whole_nodes_could_hold_it():
    gang = Gang(hosts=2, bundle={"CPU": 4, "GPU": 2}, strategy="STRICT_SPREAD", labels={"kind": "a"}, domain_label=None)
    big, small = Node({"CPU": 16, "GPU": 8}, {"kind": "a"}), Node({"CPU": 16, "GPU": 1}, {"kind": "a"})
    other = Node({"CPU": 16, "GPU": 8}, {"kind": "b"})
    assert shortage(gang, [big, big]) is None
    told = shortage(gang, [big, small, other])
    assert told == "2 times a node of its own with 4 CPU, 2 GPU, label kind=a, and 1 of its 3 nodes are such"
    assert shortage(gang.model_copy(update={"strategy": "PACK"}), [big, small, other]) is None
    assert shortage(gang, []) is not None


@pytest.mark.parametrize(
    ("told", "ending", "words"),
    [
        ({"status": "SUCCEEDED", "driver_exit_code": 0}, None, ""),
        ({"status": "FAILED", "driver_exit_code": EXIT_CODES[Ending.CRASHED]}, None, ""),
        ({"status": "FAILED", "driver_exit_code": EXIT_CODES[Ending.PREEMPTED]}, None, ""),
        ({"status": "FAILED", "driver_exit_code": HOST_LOST}, Ending.NODE_LOST, "lost a host"),
        ({"status": "FAILED", "driver_exit_code": HOST_OUT_OF_MEMORY}, Ending.OUT_OF_MEMORY, "memory"),
        ({"status": "FAILED", "driver_exit_code": SUPERVISOR_KILLED}, Ending.SUPERVISOR_LOST, "supervisor"),
        ({"status": "FAILED", "driver_exit_code": -9}, Ending.NODE_LOST, "SIGKILL"),
        ({"status": "FAILED", "driver_exit_code": 137}, Ending.NODE_LOST, "SIGKILL"),
        ({"status": "FAILED", "error_type": "JOB_SUPERVISOR_ACTOR_DIED", "message": "the actor died"}, Ending.NODE_LOST, "the actor died"),
        ({"status": "FAILED"}, Ending.NODE_LOST, "no reason given"),
        ({"status": "FAILED", "error_type": "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"}, Ending.NEVER_STARTED, "did not start"),
        ({"status": "FAILED", "error_type": "RUNTIME_ENV_SETUP_FAILURE", "message": "no env"}, Ending.NEVER_STARTED, "no env"),
        ({"status": "STOPPED"}, Ending.PREEMPTED, "nobody had cancelled"),
    ],
)
def test_rays_word_on_a_job_that_is_over(told: dict[str, object], ending: Ending | None, words: str):
    word = engine_word(JobInfo.model_validate(told), cancelled=False, heard=True)
    assert (word.ending if word else None, words in (word.what if word else "")) == (ending, True)


def test_a_stopped_job_that_somebody_cancelled_is_cancelled():
    word = engine_word(JobInfo(status="STOPPED"), cancelled=True, heard=False)
    assert word is not None
    assert word.ending is Ending.CANCELLED


def test_a_driver_that_failed_before_any_host_spoke_is_a_crash_with_its_last_line():
    told = JobInfo(status="FAILED", driver_exit_code=1, message="Traceback\nModuleNotFoundError: No module named 'infra'")
    word = engine_word(told, cancelled=False, heard=False)
    assert word is not None
    assert (word.ending, "No module named 'infra'" in word.what) == (Ending.CRASHED, True)
