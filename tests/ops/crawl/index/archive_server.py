"""A web server on loopback that gives files by range, as an object store's gateway does, and fails on request."""

import http.server
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Fault = Callable[[http.server.BaseHTTPRequestHandler, bytes, int, int], None]
"""Answers one request for the bytes [start, end) of a file in its own way."""


@dataclass
class ArchiveServer:
    """`files`: path below the root -> content. `faults`: what the next requests for a path get instead, in order."""

    files: dict[str, bytes]
    root: str = ""
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    requests: list[tuple[str, int, int]] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)
    etag: str = '"one"'


def status(code: int, **headers: str) -> Fault:
    """An answer with this status, and nothing of the file."""

    def answer(handler: http.server.BaseHTTPRequestHandler, data: bytes, start: int, end: int) -> None:
        handler.send_response(code)
        for name, value in {"Content-Length": "0", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()

    return answer


def whole_file(handler: http.server.BaseHTTPRequestHandler, data: bytes, start: int, end: int) -> None:
    """200 and everything, as servers do that don't know ranges."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def cut_after(count: int) -> Fault:
    """The right head, `count` bytes of the range, and a closed connection."""

    def answer(handler: http.server.BaseHTTPRequestHandler, data: bytes, start: int, end: int) -> None:
        send_range(handler, data, start, end, sent=count)
        handler.close_connection = True

    return answer


def shifted(handler: http.server.BaseHTTPRequestHandler, data: bytes, start: int, end: int) -> None:
    """206 with another range than was asked for."""
    send_range(handler, data, start + 1, end + 1)


def send_range(handler: http.server.BaseHTTPRequestHandler, data: bytes, start: int, end: int, *, sent: int | None = None) -> None:
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
    handler.send_header("Content-Length", str(end - start))
    handler.send_header("ETag", handler.server.seaway.etag)  # type: ignore[attr-defined]
    handler.end_headers()
    handler.wfile.write(data[start : end if sent is None else start + sent])


@contextmanager
def serving_archives(files: dict[str, bytes]) -> Iterator[ArchiveServer]:
    shown = ArchiveServer(files)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.lstrip("/")
            shown.agents.add(self.headers.get("User-Agent", ""))
            data = shown.files.get(path)
            if data is None:
                status(404)(self, b"", 0, 0)
                return
            match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if match is None:
                whole_file(self, data, 0, len(data))
                return
            start, end = int(match[1]), int(match[2]) + 1
            shown.requests.append((path, start, end))
            if (waiting := shown.faults.get(path)) and (fault := waiting.pop(0)) is not None:
                fault(self, data, start, end)
            elif start >= len(data):
                status(416, Content_Range=f"bytes */{len(data)}")(self, data, start, end)
            else:
                send_range(self, data, start, min(end, len(data)))

        def do_HEAD(self) -> None:
            data = shown.files.get(self.path.lstrip("/"))
            self.send_response(404 if data is None else 200)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return None

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            return None  # a client that hangs up is no news

    server = Server(("127.0.0.1", 0), Handler)
    server.seaway = shown  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    shown.root = f"http://127.0.0.1:{server.server_port}"
    try:
        yield shown
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
