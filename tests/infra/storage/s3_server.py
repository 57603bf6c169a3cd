"""A real S3 server on loopback (moto behind werkzeug) that can be told to lose a reply or to answer a conflict."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]
Fault = Callable[[App, Environ, StartResponse], Iterable[bytes]]

ERROR_BODY = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>"


def pass_on(app: App, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """No fault."""
    return app(environ, start_response)


def refuse(status: str, code: str) -> Fault:
    """Answer with an error and do nothing."""

    def fault(app: App, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response(status, [("Content-Type", "application/xml")])
        return [ERROR_BODY.format(code=code).encode()]

    return fault


def lose_the_reply(app: App, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Carry the request out, then answer as if the server had broken."""
    b"".join(app(environ, lambda *_: None))
    return refuse("500 Internal Server Error", "InternalError")(app, environ, start_response)


@dataclass
class FaultyServer:
    """Passes requests on to moto, except that conditional creates meet the `faults` first, one each."""

    app: App
    faults: list[Fault] = field(default_factory=list)
    creates: int = 0
    atomic: threading.Lock = field(default_factory=threading.Lock)  # moto looks, then puts; S3 does both in one step

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "PUT" and environ.get("HTTP_IF_NONE_MATCH") == "*":
            with self.atomic:
                self.creates += 1
                answer = self.faults.pop(0) if self.faults else pass_on
                return answer(self.app, environ, start_response)
        return self.app(environ, start_response)


@dataclass(frozen=True)
class S3:
    """A bucket of its own for each test."""

    server: FaultyServer
    endpoint: str
    bucket: str

    @property
    def root(self) -> str:
        return f"s3://{self.bucket}/root"


@contextmanager
def serving() -> Iterator[tuple[FaultyServer, str]]:
    """Start the server on a free port of loopback and point S3 clients at it."""
    try:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server
    except ImportError:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip("no S3 server: moto is not installed")
    import s3fs

    server = FaultyServer(DomainDispatcherApplication(create_backend_app))
    http = make_server("127.0.0.1", 0, server, threaded=True)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{http.server_port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3fs.S3FileSystem.clear_instance_cache()
        yield server, endpoint
        s3fs.S3FileSystem.clear_instance_cache()
    http.shutdown()
    thread.join()
    http.server_close()


def fresh_bucket(server: FaultyServer, endpoint: str) -> S3:
    import boto3

    bucket = f"test-{uuid4().hex[:12]}"
    client = boto3.client("s3", endpoint_url=endpoint)
    client.create_bucket(Bucket=bucket)
    client.close()
    server.faults.clear()
    return S3(server, endpoint, bucket)
