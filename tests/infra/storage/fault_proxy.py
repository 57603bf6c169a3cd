"""An HTTP reverse proxy on loopback that spoils some exchanges by a seeded plan, as networks and busy servers do.

It knows nothing of S3 but the form of its errors. Each fault is counted, so a test can tell that it happened.
"""

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from types import MappingProxyType
from typing import Any

FAULTS: Mapping[str, str] = MappingProxyType(
    {
        "lost reply": "the server did the work, and the connection breaks before a word of its reply",
        "late 500": "the server did the work, and the client hears 500",
        "500": "InternalError, nothing was done",
        "503": "ServiceUnavailable, nothing was done",
        "slow down": "503 SlowDown, nothing was done",
        "conflict": "409 OperationAborted to a PUT, nothing was done",
        "request reset": "the connection breaks in the middle of the request's body; the server sees a part of it",
        "reply reset": "the connection breaks in the middle of the reply's body",
        "truncated": "the reply ends early, in good order, with fewer bytes than it promised",
        "delay": "a quarter of a second more",
    }
)
REFUSALS = {
    "late 500": (500, "InternalError"),
    "500": (500, "InternalError"),
    "503": (503, "ServiceUnavailable"),
    "slow down": (503, "SlowDown"),
    "conflict": (409, "OperationAborted"),
}
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}


@dataclass
class Plan:
    """Which exchange meets which fault: drawn from `seed` in the order of arrival, `share` of them spoiled."""

    seed: int
    share: float
    faults: tuple[str, ...] = tuple(FAULTS)
    happened: Counter[str] = field(default_factory=Counter)
    exchanges: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._lock = threading.Lock()

    def draw(self, method: str, body_bytes: int) -> str | None:
        """The fault for the next exchange, or None."""
        with self._lock:
            self.exchanges += 1
            if self._random.random() >= self.share:
                return None
            fault = self._random.choice(self.faults)
            if (fault == "conflict" and method != "PUT") or (fault == "request reset" and body_bytes < 2):
                return None
            self.happened[fault] += 1
            return fault


class _Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    server: "_Server"

    def _pass_on(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        fault = self.server.plan.draw(self.command, length)
        if fault == "delay":
            time.sleep(0.25)
        if fault == "request reset":
            self._send_half(body)
            self._break()
        elif fault in REFUSALS and fault != "late 500":
            self._refuse(*REFUSALS[fault])
        else:
            self._answer(fault, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815 - http.server's names

    def _answer(self, fault: str | None, body: bytes) -> None:
        connection = HTTPConnection(*self.server.upstream, timeout=60)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in HOP_BY_HOP - {"trailer"} and name.lower() != "expect":
                    connection.putheader(name, value)
            connection.endheaders(body)
            reply = connection.getresponse()
            data = reply.read()
        except (OSError, HTTPException):
            self._break()
            return
        finally:
            connection.close()
        if fault == "lost reply":
            self._break()
        elif fault == "late 500":
            self._refuse(*REFUSALS[fault])
        else:
            self._reply(reply.status, reply.headers, data, fault)

    def _reply(self, status: int, headers: HTTPMessage, data: bytes, fault: str | None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in HOP_BY_HOP | {"content-length"}:
                self.send_header(name, value)
        if self.command == "HEAD":
            self.send_header("Content-Length", headers.get("Content-Length", "0"))
        elif status not in (204, 304):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "HEAD" or not data:
            return
        if fault in ("reply reset", "truncated"):
            self.wfile.write(data[: len(data) // 2])
            self._break(reset=fault == "reply reset")
        else:
            self.wfile.write(data)

    def _refuse(self, status: int, code: str) -> None:
        data = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(0 if self.command == "HEAD" else len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _send_half(self, body: bytes) -> None:
        """The server hears the head, half of the body, and then that the client is gone."""
        with suppress(OSError), socket.create_connection(self.server.upstream, timeout=60) as upstream:
            head = f"{self.command} {self.path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
            upstream.sendall(head.encode("latin-1") + b"\r\n" + body[: len(body) // 2])

    def _break(self, *, reset: bool = True) -> None:
        """End the connection: with a reset, or as if all had been said."""
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            if reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
                self.connection.close()
            else:
                self.connection.shutdown(socket.SHUT_RDWR)

    def handle(self) -> None:
        with suppress(OSError, ValueError):  # the other side, or `_break`, has closed it
            super().handle()

    def finish(self) -> None:
        with suppress(OSError, ValueError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, upstream: str, plan: Plan) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        host, _, port = upstream.removeprefix("http://").partition(":")
        self.upstream = (host, int(port))
        self.plan = plan

    def shutdown_request(self, request: Any) -> None:
        with suppress(OSError):
            super().shutdown_request(request)


@contextmanager
def fault_proxy(upstream: str, plan: Plan) -> Iterator[str]:
    """Serve `upstream` (`http://host:port`) under the plan; gives the proxy's own address."""
    with ExitStack() as stack:
        server = _Server(upstream, plan)
        stack.callback(server.server_close)
        thread = threading.Thread(target=BaseServer.serve_forever, args=(server, 0.1), daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        yield f"http://127.0.0.1:{server.server_port}"
