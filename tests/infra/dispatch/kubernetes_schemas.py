"""Whether a manifest is what the published schemas allow: Kubernetes' own by `kubernetes-validate`, JobSet's and Kueue's by our cuts."""

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate

NEWEST = kubernetes_validate.latest_version()
_FOLDER = Path(__file__).parent / "schemas"
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@functools.cache
def _validator(name: str) -> Any:
    schema = json.loads((_FOLDER / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def problems(manifest: Mapping[str, Any], cut: str) -> list[str]:
    """What one of our cuts has against an object: `path: message`."""
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in _validator(cut).iter_errors(manifest)]


def jobset_problems(jobset: Mapping[str, Any]) -> list[str]:
    """What a cluster has against a JobSet: its own schema, the Job and the pods inside it, and what JobSet's webhook checks."""
    found = problems(jobset, "jobset-v1alpha2")
    if found:
        return found
    for replicated in jobset["spec"]["replicatedJobs"]:
        found += _problems_of_job(jobset, replicated)
    return found


def kubernetes_problems(manifest: Mapping[str, Any]) -> list[str]:
    """What the newest published schemas have against a built-in object, unknown fields included."""
    try:
        kubernetes_validate.validate(dict(manifest), NEWEST, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'.'.join(map(str, error.path))}: {error.message}"]
    return []


def _problems_of_job(jobset: Mapping[str, Any], replicated: Mapping[str, Any]) -> list[str]:
    template = replicated["template"]
    name = f"{jobset['metadata']['name']}-{replicated['name']}-{replicated['replicas'] - 1}"
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **template["metadata"]}, "spec": template["spec"]}
    found = kubernetes_problems(job)
    if found:
        return found
    spec, pods = template["spec"], template["spec"]["template"]
    found += problems(pods["metadata"].get("annotations", {}), "kueue-podset-annotations")
    pod_name = f"{name}-{spec['completions'] - 1}-abcde"
    if len(pod_name) > 63 or not _DNS_1035.fullmatch(jobset["metadata"]["name"]):
        found.append(f"metadata.name: {pod_name} is no DNS-1035 label of at most 63 characters")
    # what the API server checks beyond any schema
    if pods["spec"]["restartPolicy"] not in ("Never", "OnFailure"):
        found.append(f"template.spec.restartPolicy: {pods['spec']['restartPolicy']} is not allowed in a Job")
    if "podFailurePolicy" in spec and pods["spec"]["restartPolicy"] != "Never":
        found.append("podFailurePolicy: only with restartPolicy Never")
    if spec.get("completionMode") == "Indexed" and not (spec.get("completions") and spec["parallelism"] <= spec["completions"]):
        found.append("completionMode: Indexed needs completions")
    for rule in spec.get("podFailurePolicy", {}).get("rules", ()):
        if rule.get("onExitCodes", {}).get("operator") == "In" and 0 in rule["onExitCodes"]["values"]:
            found.append("podFailurePolicy: 0 must not be In the exit codes")
    names = [variable["name"] for container in pods["spec"]["containers"] for variable in container["env"]]
    if len(set(names)) != len(names):
        found.append("env: a name stands twice")
    volumes = {volume["name"] for volume in pods["spec"]["volumes"]}
    mounted = {mount["name"] for container in pods["spec"]["containers"] for mount in container["volumeMounts"]}
    found += [f"volumeMounts: {name} is no volume" for name in mounted - volumes]
    return found
