"""An attempt as the objects a cluster is given: one JobSet of one indexed Job, a pod a host. Pure.

    python -m infra.dispatch.engines.kubernetes.manifests BACKEND.yaml SPEC_URL

prints them, for a person to read before anything is applied; BACKEND.yaml is the profile's `backend`.

One generation is one attempt: nothing here restarts a pod, a Job or the set. A set that names a queue is born suspended,
and Kueue, which admits all of its pods or none, starts it.
"""

import sys
from pathlib import Path
from typing import Any

from infra.dispatch.engines.kubernetes import names, placement, pools
from infra.dispatch.engines.kubernetes.config import KubernetesConfig, NodePool, Toleration, Volume
from infra.dispatch.environment import SOURCES, environment
from infra.dispatch.job import Attempt, Job, job_id, read_spec
from infra.supervise.placement import ADDRESS_VARIABLE

JOBSET_API = "jobset.x-k8s.io/v1alpha2"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
CONTAINER = "supervisor"
STOP_MARGIN_S = 30  # beyond the worker's grace, for the supervisor to record the end in storage that is slow

Manifest = dict[str, Any]


def jobset(job: Job, attempt: Attempt, config: KubernetesConfig, spec_url: str) -> Manifest:
    """The JobSet of an attempt; its hosts are the completion indexes of its one Job."""
    identity, target = job_id(job, attempt.number), job.resources.target
    queue = config.queues.get(job.resources.band)
    labels = names.labels(identity, attempt)
    annotations = {names.SPEC_ANNOTATION: spec_url, **placement.of_jobset(target)}
    return {
        "apiVersion": JOBSET_API,
        "kind": "JobSet",
        "metadata": {
            "name": names.jobset_name(identity),
            "namespace": config.namespace,
            "labels": {**labels, **_queue_labels(job, config)},
            "annotations": annotations,
        },
        "spec": {
            "suspend": queue is not None,
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},  # ranks meet before they are ready
            "successPolicy": {"operator": "All", "targetReplicatedJobs": [names.HOSTS]},
            "failurePolicy": {"maxRestarts": 0},
            "ttlSecondsAfterFinished": config.keep_s,
            "replicatedJobs": [
                {
                    "name": names.HOSTS,
                    "replicas": 1,
                    "template": {"metadata": {"labels": labels}, "spec": _indexed_job(job, attempt, config, spec_url)},
                }
            ],
        },
    }


def disruption_budget(job: Job, attempt: Attempt, config: KubernetesConfig, owner_uid: str) -> Manifest | None:
    """Keeps voluntary evictions (a drained node) off a gang that is not preemptible; goes with its JobSet, `owner_uid`.

    `minAvailable` as a number is the one form that works for pods of a Job; `maxUnavailable` would block every eviction, so
    a preemptible gang gets no budget at all.
    """
    if job.resources.preemptible:
        return None
    identity = job_id(job, attempt.number)
    labels = names.labels(identity, attempt)
    name = names.jobset_name(identity)
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": name,
            "namespace": config.namespace,
            "labels": labels,
            "ownerReferences": [{"apiVersion": JOBSET_API, "kind": "JobSet", "name": name, "uid": owner_uid}],
        },
        "spec": {
            "minAvailable": job.resources.target.hosts,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {key: labels[key] for key in (names.JOB_LABEL, names.UID_LABEL)}},
        },
    }


def _queue_labels(job: Job, config: KubernetesConfig) -> dict[str, str]:
    found = {
        QUEUE_LABEL: config.queues.get(job.resources.band),
        PRIORITY_LABEL: config.workload_priorities.get(job.resources.band),
    }
    return {key: value for key, value in found.items() if value is not None}


def _indexed_job(job: Job, attempt: Attempt, config: KubernetesConfig, spec_url: str) -> Manifest:
    target, labels = job.resources.target, names.labels(job_id(job, attempt.number), attempt)
    annotations = placement.of_pods(target, config.topology) if config.queues else {}
    return {
        "completionMode": "Indexed",
        "completions": target.hosts,
        "parallelism": target.hosts,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [  # whatever ends a pod ends the Job; none is ignored, none is replaced
                {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "FailJob", "onExitCodes": {"containerName": CONTAINER, "operator": "NotIn", "values": [0]}},
            ]
        },
        # no activeDeadlineSeconds, on the Job or the pods: it would count the time behind a scheduling gate
        "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": _pod(job, attempt, config, spec_url)},
    }


def _pod(job: Job, attempt: Attempt, config: KubernetesConfig, spec_url: str) -> Manifest:
    pool = config.pools[pools.family_of(job.resources.target)]
    volumes = [{"name": volume.name, **volume.source} for volume in config.volumes]
    mounts = [_mount(volume) for volume in config.volumes]
    if job.resources.target.kind == "gpu":  # NCCL's ranks of one host meet in shared memory, of which a container has 64 MiB
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory"}})
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
    pod: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": int(job.timeouts.kill_grace_s) + 1 + STOP_MARGIN_S,
        "shareProcessNamespace": True,  # the pause process reaps orphans; a supervisor that were process 1 would have to
        "enableServiceLinks": False,
        "containers": [
            {
                "name": CONTAINER,
                "image": config.image,
                "command": [config.python, "-P", "-m", "infra.dispatch.engines.kubernetes.launch"],
                "args": [_literal(spec_url)],
                "env": _env(job, attempt, config),
                "envFrom": [{"secretRef": {"name": secret}} for secret in config.env_secrets],
                "resources": _resources(job, pool),
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
        "nodeSelector": _node_selector(job, pool),
        "tolerations": [_toleration(toleration) for toleration in pool.tolerations],
        "imagePullSecrets": [{"name": name} for name in config.image_pull_secrets],
    }
    if config.service_account is not None:
        pod["serviceAccountName"] = config.service_account
    if (priority := config.pod_priorities.get(job.resources.band)) is not None:
        pod["priorityClassName"] = priority
    return pod


def _env(job: Job, attempt: Attempt, config: KubernetesConfig) -> list[Manifest]:
    """The engine's own variables first: `$(SEAWAY_HOST)` is only known to what stands below it."""
    own: list[Manifest] = [
        {
            "name": "SEAWAY_HOST",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}},
        },
        {"name": "SEAWAY_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": ADDRESS_VARIABLE, "value": names.host_address(job_id(job, attempt.number), "$(SEAWAY_HOST)")},
    ]
    taken = {variable["name"] for variable in own}
    variables = environment(job.resources, config.env)
    variables["PYTHONPATH"] = _python_path(variables["PYTHONPATH"], config.sources)
    return [*own, *({"name": name, "value": _literal(value)} for name, value in sorted(variables.items()) if name not in taken)]


def _python_path(found: str, sources: str | None) -> str:
    """The dispatcher's own folder of sources means nothing in the image."""
    paths = [path for path in found.split(":") if path != str(SOURCES)]
    return ":".join([*([sources] if sources else []), *paths])


def _resources(job: Job, pool: NodePool) -> Manifest:
    """Memory is a limit, because a machine that runs out of it kills others; CPU is only a share, because throttling helps nobody."""
    target = job.resources.target
    requests = {
        "cpu": str(job.resources.cpus * target.processes_per_host),
        "memory": str(job.resources.memory_bytes),
        "ephemeral-storage": str(job.resources.disk_bytes),
    }
    limits = {"memory": requests["memory"]}
    if target.kind != "cpu":
        chips = {pool.resource or pools.RESOURCES[target.kind]: str(pools.chips_per_host(target))}
        requests, limits = {**requests, **chips}, {**limits, **chips}
    return {"requests": requests, "limits": limits}


def _node_selector(job: Job, pool: NodePool) -> dict[str, str]:
    target = job.resources.target
    selector = dict(pool.node_selector if pool.node_selector is not None else pools.USUAL_LABELS.get(pools.family_of(target), {}))
    if target.kind == "tpu" and (shape := pools.tpu_shape(target, pool.shapes)) is not None:
        selector[pools.TPU_TOPOLOGY_LABEL] = shape
    if job.resources.region is not None:
        selector["topology.kubernetes.io/region"] = job.resources.region
    return selector


def _toleration(toleration: Toleration) -> Manifest:
    found = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.seconds,
    }
    return {name: value for name, value in found.items() if value is not None}


def _mount(volume: Volume) -> Manifest:
    return {"name": volume.name, "mountPath": volume.mount_path, "readOnly": volume.read_only}


def _literal(text: str) -> str:
    """A text in which Kubernetes expands nothing: `$(NAME)` is its syntax, `$$` its escape."""
    return text.replace("$", "$$")


def _print(backend: Path, spec_url: str) -> None:
    import yaml

    config = KubernetesConfig.model_validate(yaml.safe_load(backend.read_text()))
    spec = read_spec(spec_url)
    budget = disruption_budget(spec.job, spec.attempt, config, "the JobSet's uid, known once it exists")
    yaml.safe_dump_all(filter(None, [jobset(spec.job, spec.attempt, config, spec_url), budget]), sys.stdout, sort_keys=False)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    _print(Path(sys.argv[1]), sys.argv[2])
