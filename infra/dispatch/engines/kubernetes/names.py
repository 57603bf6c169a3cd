"""Names and labels of a job's objects, legal and findable by anyone who knows its job id."""

import re

from infra.dispatch.job import Attempt

HOSTS = "h"  # the one replicated Job; its name counts in every pod's name
JOB_LABEL = "seaway/job"
UID_LABEL = "seaway/uid"
SPEC_ANNOTATION = "seaway/spec-url"

NAME_LIMIT = 63
MAX_HOSTS = 10_000
# JobSet's webhook refuses a set whose pod names may exceed the limit: {jobset}-{replicated job}-{job index}-{pod index}-{5 random}
_SUFFIX = len(f"-{HOSTS}-0-{MAX_HOSTS - 1}-abcde")
_ROOM = NAME_LIMIT - _SUFFIX


def jobset_name(job_id: str) -> str:
    """The JobSet of a job id: itself where that is legal, else shortened in its words, never in its hash.

    A DNS-1035 label (it begins with a letter) that leaves room for the longest pod name of a gang of `MAX_HOSTS`.
    """
    name = job_id if job_id[0].isalpha() else f"j-{job_id}"
    if len(name) <= _ROOM:
        return name
    split = re.fullmatch(r"(.*)-([0-9a-f]{12}-a\d+)", name)
    if split is None:
        raise ValueError(f"{job_id!r} is no job id of Seaway; pass what infra.dispatch.job.job_id gives")
    words, identity = split.groups()
    return f"{words[: _ROOM - len(identity) - 1].rstrip('-')}-{identity}"


def host_address(job_id: str, host: str) -> str:
    """The name by which the other pods of the set reach host `host`: JobSet's stable host name in its headless service."""
    name = jobset_name(job_id)
    return f"{name}-{HOSTS}-0-{host}.{name}"


def labels(job_id: str, attempt: Attempt) -> dict[str, str]:
    """On every object of the attempt."""
    return {"app.kubernetes.io/managed-by": "seaway", JOB_LABEL: job_id, UID_LABEL: attempt.uid}


def selector(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items() if key.startswith("seaway/"))
