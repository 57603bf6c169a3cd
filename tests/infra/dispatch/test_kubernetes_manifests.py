"""Manifests against the published schemas, and what no schema sees."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from infra.artifacts.store import ArtifactStore
from infra.dispatch.devices import device
from infra.dispatch.engines.kubernetes import names, placement
from infra.dispatch.engines.kubernetes.config import KubernetesConfig, NodePool, Toleration, TopologyLevels, Volume
from infra.dispatch.engines.kubernetes.manifests import STOP_MARGIN_S, disruption_budget, jobset
from infra.dispatch.job import Attempt, Band, Job, Resources, Timeouts, job_id, write_spec
from tests.infra.dispatch.builders import job_of
from tests.infra.dispatch.kubernetes_schemas import jobset_problems, kubernetes_problems
from tests.infra.dispatch.programs import CountConfig, count

BANDS = get_args(Band)
DEVICES = ["cpu", "cpux4", "h100x1", "h100x8", "h100x64", "h200x16", "b200x8", "gb200x4", "gb200x64", "gb200x192", "v4-2048", "v5p-32"]
DEVICES += ["v5e-1", "v5e-64", "v6e-256"]
FAMILIES = ["cpu", "h100", "h200", "b200", "gb200", "v4", "v5p", "v5e", "v6e"]
CONFIG = KubernetesConfig(
    cluster="east",
    image="registry.example/seaway:1",
    namespace="training",
    queues={band: f"seaway-{band}" for band in BANDS},
    workload_priorities={band: f"workload-{band}" for band in BANDS},
    pod_priorities={band: f"pod-{band}" for band in BANDS},
    pools={family: NodePool() for family in FAMILIES}
    | {"h100": NodePool(tolerations=(Toleration(key="nvidia.com/gpu", effect="NoSchedule"), Toleration(seconds=60, effect="NoExecute")))},
    topology=TopologyLevels(near="example.com/block", rack="nvidia.com/gpu.clique"),
    service_account="seaway",
    image_pull_secrets=("registry",),
    env={"AWS_REGION": "eu-1", "PRICE": "$(5)"},
    env_secrets=("store-credentials",),
    volumes=(Volume(name="data", mount_path="/data", source={"persistentVolumeClaim": {"claimName": "data"}}, read_only=True),),
)
ATTEMPT = Attempt(1, "0123456789abcdef")
SPEC = "s3://store/$(SEAWAY_HOST)/.attempts/000001/job.json"


def job_on(name: str, **resources: Any) -> Job:
    return job_of(ArtifactStore("memory://manifests"), count, CountConfig(), resources=Resources(device=name, **resources))


def indexed_job(name: str, config: KubernetesConfig = CONFIG, **resources: Any) -> dict[str, Any]:
    found: dict[str, Any] = jobset(job_on(name, **resources), ATTEMPT, config, SPEC)["spec"]["replicatedJobs"][0]["template"]["spec"]
    return found


def pod(name: str, config: KubernetesConfig = CONFIG, **resources: Any) -> dict[str, Any]:
    found: dict[str, Any] = indexed_job(name, config, **resources)["template"]["spec"]
    return found


@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("name", DEVICES)
def test_every_target_and_band_is_what_the_schemas_allow(name: str, band: Band):
    job = job_on(name, band=band, preemptible=False)
    assert CONFIG.refusal(job.resources) is None
    assert jobset_problems(jobset(job, ATTEMPT, CONFIG, SPEC)) == []
    budget = disruption_budget(job, ATTEMPT, CONFIG, "uid-of-the-set")
    assert budget is not None
    assert kubernetes_problems(budget) == []


@pytest.mark.parametrize("name", ["cpu", "cpux4"])
def test_a_config_that_says_nothing_gives_a_set_that_the_schemas_allow(name: str):
    plain = KubernetesConfig(cluster="east", image="seaway:1")
    found = jobset(job_on(name), ATTEMPT, plain, SPEC)
    assert jobset_problems(found) == []
    assert found["spec"]["suspend"] is False


def test_the_schemas_refuse_what_a_cluster_would():
    found = jobset(job_on("h100x16"), ATTEMPT, CONFIG, SPEC)
    found["spec"]["replicatedJobs"][0]["template"]["spec"]["completionsMode"] = "Indexed"
    assert "completionsMode" in jobset_problems(found)[0]
    found = jobset(job_on("h100x16"), ATTEMPT, CONFIG, SPEC)
    found["spec"]["failurePolicy"]["maxRestart"] = 0
    assert "maxRestart" in jobset_problems(found)[0]
    found = jobset(job_on("h100x16"), ATTEMPT, CONFIG, SPEC)
    found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    assert "restartPolicy" in jobset_problems(found)[0]
    found = jobset(job_on("gb200x192"), ATTEMPT, CONFIG, SPEC)
    del found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["annotations"][placement.SLICE_SIZE]
    assert "podset-slice-size" in jobset_problems(found)[0]


@pytest.mark.parametrize("name", DEVICES)
def test_an_attempt_runs_once_and_fails_whole(name: str):
    found = jobset(job_on(name), ATTEMPT, CONFIG, SPEC)
    job, hosts = indexed_job(name), device(name).hosts
    assert found["spec"]["failurePolicy"] == {"maxRestarts": 0}
    assert (job["completionMode"], job["completions"], job["parallelism"], job["backoffLimit"]) == ("Indexed", hosts, hosts, 0)
    assert {rule["action"] for rule in job["podFailurePolicy"]["rules"]} == {"FailJob"}
    assert job["template"]["spec"]["restartPolicy"] == "Never"


def test_a_set_waits_suspended_in_the_queue_of_its_band_with_its_priorities():
    for band in BANDS:
        found = jobset(job_on("h100x8", band=band), ATTEMPT, CONFIG, SPEC)
        assert found["spec"]["suspend"] is True
        assert found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == f"seaway-{band}"
        assert found["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == f"workload-{band}"
        assert pod("h100x8", band=band)["priorityClassName"] == f"pod-{band}"


def test_no_deadline_counts_the_time_behind_a_gate():
    assert "activeDeadlineSeconds" not in str(jobset(job_on("h100x64"), ATTEMPT, CONFIG, SPEC))


def test_a_pod_has_time_to_end_its_ranks_and_to_record_that():
    job = job_on("cpu").model_copy(update={"timeouts": Timeouts(kill_grace_s=45.5)})
    found = jobset(job, ATTEMPT, CONFIG, SPEC)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert found["terminationGracePeriodSeconds"] >= 45.5 + STOP_MARGIN_S


def test_only_a_gang_that_is_not_preemptible_keeps_evictions_off_and_all_of_it():
    assert disruption_budget(job_on("h100x64", preemptible=True), ATTEMPT, CONFIG, "uid") is None
    budget = disruption_budget(job_on("h100x64", preemptible=False), ATTEMPT, CONFIG, "uid")
    assert budget is not None
    assert budget["spec"]["minAvailable"] == 8
    assert "maxUnavailable" not in budget["spec"]  # works for no pod of a Job
    found = jobset(job_on("h100x64", preemptible=False), ATTEMPT, CONFIG, SPEC)
    template = found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert budget["metadata"]["ownerReferences"][0]["uid"] == "uid"


def test_chips_are_asked_of_nodes_that_carry_them():
    h100, v5p = pod("h100x64"), pod("v5p-32")
    assert h100["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert h100["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert [toleration["effect"] for toleration in h100["tolerations"]] == ["NoSchedule", "NoExecute"]
    assert v5p["containers"][0]["resources"]["limits"]["google.com/tpu"] == "4"
    assert v5p["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
        "cloud.google.com/gke-tpu-topology": "2x2x4",
    }
    assert pod("v4-2048")["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "8x8x16"
    assert pod("cpu", region="eu-1")["nodeSelector"] == {"topology.kubernetes.io/region": "eu-1"}


@pytest.mark.parametrize("name", [name for name in DEVICES if device(name).kind == "tpu"])
def test_the_shape_of_a_tpu_slice_has_as_many_chips_as_the_slice(name: str):
    product = 1
    for side in pod(name)["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x"):
        product *= int(side)
    assert product == device(name).chips


def test_memory_is_of_a_host_and_threads_are_of_each_process():
    requests = pod("h100x16", cpus=12, memory_bytes=2**40)["containers"][0]["resources"]["requests"]
    assert (requests["cpu"], requests["memory"]) == ("96", str(2**40))


def test_a_gang_within_one_rack_and_slices_of_racks_are_asked_for_by_the_clusters_label():
    levels = CONFIG.topology
    assert placement.of_pods(device("gb200x64"), levels) == {placement.REQUIRED: "nvidia.com/gpu.clique"}
    assert placement.of_pods(device("gb200x192"), levels) == {
        placement.PREFERRED: "example.com/block",
        placement.SLICE_REQUIRED: "nvidia.com/gpu.clique",
        placement.SLICE_SIZE: "16",
    }
    assert placement.of_pods(device("h100x64"), levels) == {placement.PREFERRED: "example.com/block"}
    assert placement.of_pods(device("h100x8"), levels) == {}
    assert placement.of_jobset(device("v5p-32")) == {placement.EXCLUSIVE: "cloud.google.com/gke-nodepool"}


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("b200x8", {"pools": {"cpu": NodePool()}}, "no pool for b200x8.*add b200"),
        ("v5p-24", {}, "v5p-24 has no usual TPU topology"),
        ("cpu", {"queues": {"batch": "seaway"}}, "band interactive has no queue"),
        ("gb200x64", {"topology": TopologyLevels()}, "gb200x64 must lie within NVLink domains"),
        ("gb200x64", {"queues": {}}, "gb200x64 must lie within NVLink domains"),
    ],
)
def test_what_can_never_run_is_refused_by_the_config_alone(name: str, changes: dict[str, Any], words: str):
    refusal = CONFIG.model_copy(update=changes).refusal(Resources(device=name))
    assert refusal is not None
    assert re.search(words, refusal)


def test_a_shape_that_the_pool_names_is_taken():
    config = CONFIG.model_copy(update={"pools": {"v5p": NodePool(shapes={"v5p-24": "2x2x3"})}})
    assert config.refusal(Resources(device="v5p-24")) is None
    assert pod("v5p-24", config)["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "2x2x3"


def test_the_command_needs_no_shell_and_expands_nothing_of_the_users():
    container = pod("h100x64")["containers"][0]
    assert container["command"] == ["python", "-P", "-m", "infra.dispatch.engines.kubernetes.launch"]
    assert container["args"] == ["s3://store/$$(SEAWAY_HOST)/.attempts/000001/job.json"]
    env = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert env["PRICE"] == "$$(5)"


def test_a_pods_own_name_is_known_before_it_is_used():
    env = [variable["name"] for variable in pod("h100x64")["containers"][0]["env"]]
    assert env.index("SEAWAY_HOST") < env.index("SEAWAY_HOST_ADDRESS")


def test_the_dispatchers_own_folder_is_no_place_in_the_image():
    env = {variable["name"]: variable.get("value") for variable in pod("cpu")["containers"][0]["env"]}
    assert str(Path(__file__).parents[3]) not in env["PYTHONPATH"]
    env = {v["name"]: v.get("value") for v in pod("cpu", CONFIG.model_copy(update={"sources": "/opt/seaway"}))["containers"][0]["env"]}
    assert env["PYTHONPATH"] == "/opt/seaway"


def test_the_jobs_own_environment_wins_over_the_clusters_but_not_over_the_engines():
    found = pod("cpu", env={"AWS_REGION": "us-2", "SEAWAY_HOST_ADDRESS": "elsewhere"})["containers"][0]["env"]
    values = [(variable["name"], variable.get("value")) for variable in found]
    assert ("AWS_REGION", "us-2") in values
    assert [value for name, value in values if name == "SEAWAY_HOST_ADDRESS"] != ["elsewhere"]


asset_names = st.text(min_size=1, max_size=60)


@given(asset=asset_names, partition=st.none() | asset_names, number=st.integers(1, 10**9))
def test_every_job_has_a_legal_name_that_its_hash_and_attempt_survive_in(asset: str, partition: str | None, number: int):
    job = job_on("cpu").model_copy(update={"asset": asset, "partition": partition})
    identity = job_id(job, number)
    name = names.jobset_name(identity)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert name.endswith(identity[identity.rindex("-a") - 12 :])
    pod_name = f"{name}-{names.HOSTS}-0-{names.MAX_HOSTS - 1}-abcde"
    assert len(pod_name) <= names.NAME_LIMIT
    for value in names.labels(identity, ATTEMPT).values():
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", value)


def test_a_usual_job_id_is_the_name_of_its_set():
    identity = job_id(job_on("cpu"), 1)
    assert names.jobset_name(identity) == identity
    assert names.host_address(identity, "3") == f"{identity}-h-0-3.{identity}"


def test_the_manifests_can_be_read_before_they_are_applied(tmp_path: Path):
    job = job_of(ArtifactStore(str(tmp_path / "store")), count, CountConfig(), resources=Resources(device="cpux4", preemptible=False))
    spec_url = write_spec(job, ATTEMPT)
    config = tmp_path / "backend.yaml"
    config.write_text("kind: kubernetes\ncluster: east\nimage: seaway:1\n")
    tool = [sys.executable, "-m", "infra.dispatch.engines.kubernetes.manifests", str(config), spec_url]
    printed = subprocess.run(tool, capture_output=True, text=True, check=True, timeout=60).stdout
    documents = list(yaml.safe_load_all(printed))
    assert [document["kind"] for document in documents] == ["JobSet", "PodDisruptionBudget"]
    assert documents[0] == jobset(job, ATTEMPT, KubernetesConfig(cluster="east", image="seaway:1"), spec_url)
