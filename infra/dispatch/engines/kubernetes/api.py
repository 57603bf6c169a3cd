"""The API server as this engine uses it: a dozen requests, each with a time-out, in plain JSON objects.

An answer that says nothing of the job's fate (time-outs, 429, 5xx, refused connections, an expired token) is
`EngineUnavailable`; an answer that says no is `Refused`, with the server's words.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from infra.dispatch.backend import EngineUnavailable, JobRejected
from infra.dispatch.engines.kubernetes.config import KubernetesConfig

Found = Mapping[str, Any]

_JOBSETS = ("jobset.x-k8s.io", "v1alpha2", "jobsets")
_KUEUE = "kueue.x-k8s.io"
_WORKLOAD_OWNER_LABEL = "kueue.x-k8s.io/job-uid"
_UNKNOWN = {0, 401, 408, 429}  # no status, credentials that ran out, and please later: ask again


class Refused(RuntimeError):  # noqa: N818 - an answer, not a fault
    """The server understood and said no.

    Attributes:
        status: HTTP status; 409 is a name that is taken.
        is_absence: whether a 404 means that there is no such object. A server that starts up, or lacks the custom
            resource, answers 404 to everything of that kind, and knows nothing of any object.
    """

    def __init__(self, status: int, words: str, *, is_absence: bool = False) -> None:
        super().__init__(words)
        self.status = status
        self.is_absence = is_absence


class ClusterApi:
    """A client of one namespace.

    Raises:
        JobRejected: the client library is missing, or no credentials for the cluster are found.
    """

    def __init__(self, config: KubernetesConfig) -> None:
        try:
            import kubernetes  # 1 s to import; loading the lineage must not
        except ImportError as error:
            raise JobRejected("backend kubernetes needs its client; install it with pip install 'seaway[kubernetes]'") from error
        client = _connect(kubernetes, config)
        self._client = kubernetes.client
        self._objects = kubernetes.client.CustomObjectsApi(client)
        self._core = kubernetes.client.CoreV1Api(client)
        self._policy = kubernetes.client.PolicyV1Api(client)
        self._namespace = config.namespace
        self._kueue_version = config.kueue_version
        self._timeout_s = config.request_timeout_s

    def create_jobset(self, manifest: Found) -> Found:
        """Create the set; give it as stored.

        Raises:
            Refused: 409 where the name is taken; else a request that no retry will make right.
        """
        group, version, plural = _JOBSETS
        return self._ask(self._objects.create_namespaced_custom_object, group, version, self._namespace, plural, manifest)

    def jobset(self, name: str) -> Found | None:
        group, version, plural = _JOBSETS
        return self._find(self._objects.get_namespaced_custom_object, group, version, self._namespace, plural, name)

    def delete_jobset(self, name: str, uid: str) -> None:
        """Delete this very set, its pods before it; nothing there, or another of the name, is fine."""
        group, version, plural = _JOBSETS
        options = self._client.V1DeleteOptions(propagation_policy="Foreground", preconditions=self._client.V1Preconditions(uid=uid))
        try:
            self._find(self._objects.delete_namespaced_custom_object, group, version, self._namespace, plural, name, body=options)
        except Refused as refused:
            if refused.status != 409:
                raise

    def create_budget(self, manifest: Found) -> None:
        """Create a disruption budget, unless it is there."""
        try:
            self._ask(self._policy.create_namespaced_pod_disruption_budget, self._namespace, manifest)
        except Refused as refused:
            if refused.status != 409:
                raise

    def pods(self, selector: str) -> list[Found]:
        return list(self._ask(self._core.list_namespaced_pod, self._namespace, label_selector=selector)["items"])

    def queue_exists(self, name: str) -> bool:
        """Whether Kueue knows the LocalQueue; True also where this account may not look."""
        try:
            queue = self._find(
                self._objects.get_namespaced_custom_object, _KUEUE, self._kueue_version, self._namespace, "localqueues", name
            )
        except Refused as refused:
            if refused.status not in (403, 404):
                raise
            return refused.status == 403
        return queue is not None

    def workload(self, jobset_uid: str) -> Found | None:
        """Kueue's view of a set, once it has one."""
        found = self._find(
            self._objects.list_namespaced_custom_object,
            _KUEUE,
            self._kueue_version,
            self._namespace,
            "workloads",
            label_selector=f"{_WORKLOAD_OWNER_LABEL}={jobset_uid}",
        )
        items = found["items"] if found is not None else []
        return items[0] if items else None

    def log(self, pod: str, container: str, tail: int) -> str:
        """The last lines of a container; empty where there is no log (yet, or any more)."""

        def read(**options: Any) -> Any:
            return self._core.read_namespaced_pod_log(pod, self._namespace, container=container, tail_lines=tail, **options)

        try:
            return bytes(self._answer(read).data).decode(errors="replace")
        except Refused as refused:
            if refused.status not in (400, 404):  # 400: the container is waiting to start
                raise
            return ""

    def _find(self, request: Callable[..., Any], *arguments: Any, **options: Any) -> Found | None:
        try:
            return self._ask(request, *arguments, **options)
        except Refused as refused:
            if not refused.is_absence:
                raise
            return None

    def _ask(self, request: Callable[..., Any], *arguments: Any, **options: Any) -> Found:
        found: Found = json.loads(self._answer(request, *arguments, **options).data)
        return found

    def _answer(self, request: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        from urllib3.exceptions import HTTPError

        try:
            # the raw answer: the generated models drop what they do not know
            return request(*arguments, **options, _request_timeout=self._timeout_s, _preload_content=False)
        except self._client.ApiException as error:
            status, told = int(error.status or 0), _status_of(error)
            words = str(told.get("message") or error.body or error.reason)
            if status in _UNKNOWN or status >= 500:
                raise EngineUnavailable(f"the API server answered {status}: {words}") from error
            raise Refused(status, words, is_absence=told.get("reason") == "NotFound") from error
        except (HTTPError, OSError) as error:
            raise EngineUnavailable(f"the API server did not answer within {self._timeout_s:.0f} s or is away: {error}") from error


def _connect(kubernetes: Any, config: KubernetesConfig) -> Any:
    """A client of the configured cluster. It retries nothing by itself: whoever asks decides."""
    settings = kubernetes.client.Configuration()
    try:
        if config.in_cluster:
            kubernetes.config.load_incluster_config(client_configuration=settings)
        else:
            kubernetes.config.load_kube_config(config.kubeconfig, config.context, client_configuration=settings, persist_config=False)
    except kubernetes.config.ConfigException as error:
        where = "the pod's service account" if config.in_cluster else config.kubeconfig or "the usual kubeconfig"
        raise JobRejected(
            f"cluster {config.cluster}: can't connect by {where}: {error}; correct context or kubeconfig in the backend"
        ) from error
    settings.retries = False
    return kubernetes.client.ApiClient(settings)


def _status_of(error: Any) -> Found:
    """The server's Status object; empty where something else answered."""
    try:
        told = json.loads(error.body)
    except (TypeError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}
