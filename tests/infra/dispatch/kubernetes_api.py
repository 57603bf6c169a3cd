"""An API server's emulator on loopback: the REST paths that this engine uses, with its status codes, conflicts and faults.

kmock's emulator was looked at first: it validates nothing, has no preconditions, and answers a duplicate with 500, where the
promises of this engine hang on 409, 422 and what happens when a reply is lost.
"""

import contextlib
import json
import re
import threading
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Object = dict[str, Any]
Key = tuple[str, str, str]

_PATH = re.compile(r"/(?:api/v1|apis/([^/]+)/([^/]+))/namespaces/([^/]+)/([^/]+)(?:/([^/]+))?(?:/(log))?")
GROUPS = {
    "jobsets": ("jobset.x-k8s.io", "v1alpha2"),
    "workloads": ("kueue.x-k8s.io", "v1beta1"),
    "localqueues": ("kueue.x-k8s.io", "v1beta1"),
    "poddisruptionbudgets": ("policy", "v1"),
    "pods": (None, None),
}


@dataclass
class Fault:
    """What happens to the next `times` requests of this kind instead of an answer, or after it.

    Attributes:
        what: a status code; "hang" until the client gives up; "lose the reply" of a request that was carried out.
    """

    method: str
    plural: str
    what: int | Literal["hang", "lose the reply"]
    times: int = 1


class ApiServer:
    """Objects by (plural, namespace, name), and the requests that change them. Hold `lock` to look at several at once.

    Args:
        validate: what is wrong with a new object of a plural, if anything: 422.
    """

    def __init__(self, validate: dict[str, Callable[[Object], list[str]]]) -> None:
        self.lock = threading.RLock()
        self.objects: dict[Key, Object] = {}
        self.groups = dict(GROUPS)
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.read_log: Callable[[Object, int], str | None] = lambda pod, tail: None
        self._validate = validate
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._released.set()
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def all(self, plural: str) -> list[Object]:
        with self.lock:
            return [found for (kind, _, _), found in self.objects.items() if kind == plural]

    def put(self, plural: str, found: Object) -> Object:
        """Store a new object as the server would."""
        metadata = found["metadata"]
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        with self.lock:
            self.objects[plural, metadata["namespace"], metadata["name"]] = found
        return found

    def remove(self, plural: str, found: Object) -> None:
        with self.lock:
            self.objects.pop((plural, found["metadata"]["namespace"], found["metadata"]["name"]), None)

    def fault_of(self, method: str, plural: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if (fault.method, fault.plural) == (method, plural) and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def hang(self) -> None:
        self._released.wait(60)

    def answer(self, method: str, url: str, body: Object) -> tuple[int, Object | str]:
        """Status and body of a request."""
        parts = urllib.parse.urlsplit(url)
        query = dict(urllib.parse.parse_qsl(parts.query))
        match = _PATH.fullmatch(parts.path)
        if match is None or self.groups.get(match[4]) != (match[1], match[2]):
            return 404, "404 page not found\n"
        _, _, namespace, plural, name, log = match.groups()
        with self.lock:
            if log:
                return self._log(self.objects.get((plural, namespace, name)), int(query["tailLines"]))
            if method == "POST":
                return self._create(plural, namespace, body)
            if name is None:
                return 200, {"kind": "List", "items": self._selected(plural, namespace, query.get("labelSelector", ""))}
            found = self.objects.get((plural, namespace, name))
            if found is None:
                return 404, _status(404, "NotFound", f'{plural} "{name}" not found')
            return (200, found) if method == "GET" else self._delete(plural, found, body)

    def _create(self, plural: str, namespace: str, body: Object) -> tuple[int, Object]:
        name = body["metadata"]["name"]
        if wrong := self._validate.get(plural, lambda found: [])(body):
            return 422, _status(422, "Invalid", f'{body["kind"]} "{name}" is invalid: {"; ".join(wrong)}')
        if (plural, namespace, name) in self.objects:
            return 409, _status(409, "AlreadyExists", f'{plural} "{name}" already exists')
        return 201, self.put(plural, body)

    def _selected(self, plural: str, namespace: str, selector: str) -> list[Object]:
        wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
        found = [item for (kind, space, _), item in self.objects.items() if (kind, space) == (plural, namespace)]
        return [item for item in found if wanted.items() <= item["metadata"].get("labels", {}).items()]

    def _delete(self, plural: str, found: Object, body: Object) -> tuple[int, Object]:
        uid = body.get("preconditions", {}).get("uid")
        if uid not in (None, found["metadata"]["uid"]):
            return 409, _status(409, "Conflict", "the UID in the precondition does not match the UID in record")
        found["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
        if body.get("propagationPolicy") == "Foreground":
            found["metadata"]["finalizers"] = ["foregroundDeletion"]
        return 200, found

    def _log(self, pod: Object | None, tail: int) -> tuple[int, Object | str]:
        if pod is None:
            return 404, _status(404, "NotFound", "pod not found")
        text = self.read_log(pod, tail)
        if text is None:
            return 400, _status(400, "BadRequest", "the container is waiting to start")
        return 200, text


def _status(code: int, reason: str, message: str) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}


def _handler(server: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            method, body = self.command, self.rfile.read(int(self.headers.get("Content-Length", 0)))
            match = _PATH.fullmatch(urllib.parse.urlsplit(self.path).path)
            plural = match[4] if match else ""
            server.requests.append((method, plural))
            fault = server.fault_of(method, plural)
            if fault is not None and fault.what == "hang":
                server.hang()
                self.close_connection = True
                return
            if fault is not None and isinstance(fault.what, int):
                self._send(fault.what, _status(fault.what, "Planned", "planned by the test"))
                return
            with server.lock:
                status, found = server.answer(method, self.path, json.loads(body) if body else {})
                sent = json.dumps(found) if isinstance(found, dict) else found
            if fault is not None:
                self.close_connection = True
                return
            self._send(status, sent)

        def _send(self, status: int, found: Object | str) -> None:
            data = (found if isinstance(found, str) else json.dumps(found)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            return None

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - http.server's names

    return Handler
