"""Ray's Jobs API over HTTP, as its documentation specifies it: six requests, each with a time-out.

Ray's own client would need the whole of Ray on the dispatcher's machine, and waits without end for a head that hangs.
"""

import json
import os
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from infra.dispatch.backend import EngineUnavailable, JobRejected
from infra.dispatch.engines.ray.config import RayConfig
from infra.dispatch.engines.ray.placement import Node
from infra.dispatch.engines.ray.words import JobInfo

if TYPE_CHECKING:
    import httpx

_MAX_NODES = 10_000


class Unauthorized(EngineUnavailable):
    """The cluster wants another token."""


class JobsApi:
    """A client of one cluster."""

    def __init__(self, config: RayConfig) -> None:
        self._config = config
        self._address = config.address.rstrip("/")

    def submit(self, submission_id: str, entrypoint: str, *, env: Mapping[str, str], metadata: Mapping[str, str]) -> None:
        """Submit the job, unless it was submitted before.

        Raises:
            JobRejected: Ray calls the request invalid.
            EngineUnavailable: unknown whether it was submitted.
        """
        request = {
            "submission_id": submission_id,
            "entrypoint": entrypoint,
            "runtime_env": {"env_vars": dict(env)},
            "metadata": dict(metadata),
        }
        status, body = self._ask("POST", "/api/jobs/", json=request)
        if status == 200 or self.job(submission_id) is not None:  # Ray has no status of its own for a name that is taken
            return
        if status == 400:
            raise JobRejected(f"Ray cluster {self._config.name} refuses the job: {_last_line(body)}")
        raise EngineUnavailable(f"Ray cluster {self._config.name} answered {status} to a submission: {_last_line(body)}")

    def job(self, submission_id: str) -> JobInfo | None:
        """The job, or None if the cluster doesn't know it."""
        answer = self._answer("GET", f"/api/jobs/{submission_id}")
        if answer.status_code == 200:
            info = JobInfo.model_validate_json(answer.text)
            return info.model_copy(update={"over_for_s": _seconds_since(info.end_time, answer.headers.get("Date"))})
        if answer.status_code == 404 and "does not exist" in answer.text:  # and not the 404 of a proxy whose cluster is away
            return None
        raise EngineUnavailable(f"Ray cluster {self._config.name} answered {answer.status_code}: {_last_line(answer.text)}")

    def stop(self, submission_id: str) -> None:
        """Ask Ray to end the job; nothing happens to one that is over, unknown, or not yet at its node."""
        self._ask("POST", f"/api/jobs/{submission_id}/stop")

    def log(self, submission_id: str) -> str:
        """What driver and hosts printed; empty where there is no log (yet, or any more)."""
        status, body = self._ask("GET", f"/api/jobs/{submission_id}/logs")
        return str(_json(body).get("logs") or "") if status == 200 else ""

    def nodes(self) -> list[Node]:
        """Every node that the cluster knows of, also those that died."""
        status, body = self._ask("GET", "/api/v0/nodes", params={"detail": "1", "limit": str(_MAX_NODES)})
        if status != 200:
            raise EngineUnavailable(f"Ray cluster {self._config.name} answered {status}: {_last_line(body)}")
        rows = _json(body)["data"]["result"]["result"]
        return [Node(row["resources_total"] or {}, row["labels"] or {}) for row in rows]

    def _ask(self, method: str, path: str, **options: Any) -> tuple[int, str]:
        answer = self._answer(method, path, **options)
        return answer.status_code, answer.text

    def _answer(self, method: str, path: str, **options: Any) -> "httpx.Response":
        import httpx  # 0.1 s that loading the lineage needn't pay

        try:
            answer = httpx.request(
                method, self._address + path, headers=self._headers(), timeout=self._config.request_timeout_s, trust_env=False, **options
            )
        except httpx.HTTPError as error:
            raise EngineUnavailable(f"Ray cluster {self._config.name} did not answer: {type(error).__name__}: {error}") from error
        if answer.status_code in (401, 403):
            raise Unauthorized(
                f"Ray cluster {self._config.name} wants another token than ${self._config.token_env} holds "
                f"({answer.status_code}: {_last_line(answer.text)}); set that variable to the cluster's"
            )
        return answer

    def _headers(self) -> dict[str, str]:
        token = os.environ.get(self._config.token_env)
        return {**self._config.headers, **({"Authorization": f"Bearer {token}"} if token else {})}


def _seconds_since(time_ms: int | None, date: str | None) -> float | None:
    """How long ago it was, by the cluster's clock: what its server stamps on each answer. Ours may be wrong."""
    if time_ms is None or date is None:
        return None
    return parsedate_to_datetime(date).timestamp() - time_ms / 1000


def _json(body: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body)
    return found


def _last_line(body: str) -> str:
    """Ray answers with tracebacks, whose last line is the sentence."""
    lines = body.strip().splitlines()
    return lines[-1][:500] if lines else "no body"
