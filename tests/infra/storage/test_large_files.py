"""Files of several parts: whole once they are closed, never half there, and nothing left of those that failed."""

import hashlib
import random
from collections.abc import Callable
from typing import Any

import pytest
import s3fs

from infra.artifacts.store import ArtifactStore
from infra.artifacts.writer import Writer
from infra.storage import upload
from infra.storage.errors import TransientStorageError
from infra.storage.filesystem import open_filesystem
from infra.storage.objects import list_files, read_or_none, remove_tree, sha256_of
from infra.storage.s3 import unfinished_uploads
from tests.infra.artifacts.builders import RECIPE, begin, publish

MIB = 1024 * 1024
PART = 5 * MIB  # the smallest that S3 takes


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "PART_BYTES", PART)


@pytest.fixture
def seaweed_out(seaweed_root: str) -> Writer:
    return Writer(f"{seaweed_root}/attempt-1", scratch_url="")


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def raise_after(_: object) -> None:
    raise ZeroDivisionError


def uploads_below(url: str) -> list[str]:
    filesystem, path = open_filesystem(url)
    bucket, _, prefix = path.partition("/")
    return [found["Key"] for found in unfinished_uploads(filesystem, bucket, prefix)]


class Meddling:
    """Stands between us and the server for one operation: `meddle(call, arguments)` decides what becomes of each request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, operation: str, meddle: Callable[[Callable[..., Any], dict[str, Any]], Any]):
        self.calls = 0
        honest = s3fs.S3FileSystem.call_s3

        def call_s3(filesystem: Any, method: str, *args: Any, **arguments: Any) -> Any:
            def call(**changed: Any) -> Any:
                return honest(filesystem, method, *args, **(arguments | changed))

            if method != operation:
                return call()
            self.calls += 1
            return meddle(call, arguments)

        monkeypatch.setattr(s3fs.S3FileSystem, "call_s3", call_s3)


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 2 * PART, 3 * PART + 17])
def test_a_streamed_file_is_stored_byte_for_byte(storage: str, size: int) -> None:
    out = Writer(f"{storage}/attempt-1", scratch_url="")
    data = noise(size)
    with out.open("deep/part.bin") as stream:
        for start in range(0, size, 700_001):
            stream.write(data[start : start + 700_001])
    assert read_or_none(f"{out.url}/deep/part.bin") == data
    assert [(entry.size, entry.sha256) for entry in out.files] == [(size, hashlib.sha256(data).hexdigest())]


def test_a_large_artifact_is_published_and_read_back_in_ranges(storage: str) -> None:
    store = ArtifactStore(storage)
    address = store.address("normalized", "web", RECIPE)
    data = noise(3 * PART + 17)
    artifact = publish(store, address, *begin(store, address, {"part.bin": data}))
    store.verify(artifact)
    with artifact.open("part.bin") as stream:
        for start, size in ((0, 10), (2 * PART - 5, 10), (3 * PART, 100)):
            stream.seek(start)
            assert stream.read(size) == data[start : start + size]


def test_a_program_that_fails_in_mid_file_leaves_neither_file_nor_parts(storage: str) -> None:
    out = Writer(f"{storage}/attempt-1", scratch_url="")
    with pytest.raises(ZeroDivisionError), out.open("part.bin") as stream:
        raise_after(stream.write(noise(2 * PART)))
    assert out.files == ()
    assert list_files(out.url) == {}
    if storage.startswith("s3:"):
        assert uploads_below(out.url) == []


@pytest.mark.s3
def test_parts_that_a_killed_process_left_go_with_its_attempt(seaweed_root: str) -> None:
    filesystem, path = open_filesystem(f"{seaweed_root}/attempt-1/part.bin")
    bucket, _, key = path.partition("/")
    upload_id = filesystem.call_s3("create_multipart_upload", Bucket=bucket, Key=key)["UploadId"]
    filesystem.call_s3("upload_part", Bucket=bucket, Key=key, UploadId=upload_id, PartNumber=1, Body=noise(PART))
    assert uploads_below(seaweed_root) == [key]
    remove_tree(f"{seaweed_root}/attempt-1")
    assert uploads_below(seaweed_root) == []


@pytest.mark.s3
def test_a_completion_whose_reply_was_lost_counts(seaweed_out: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second completion of an upload that is done may be answered with `NoSuchUpload`."""

    def lose_the_reply(call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        call()
        call(UploadId="00000000000000000000000000000000")  # as S3 answers once the upload is done

    meddling = Meddling(monkeypatch, "complete_multipart_upload", lose_the_reply)
    with seaweed_out.open("part.bin") as stream:
        stream.write(noise(2 * PART))
    assert meddling.calls == 1
    assert sha256_of(f"{seaweed_out.url}/part.bin", 2 * PART) == seaweed_out.files[0].sha256


@pytest.mark.s3
def test_an_upload_that_somebody_aborted_is_a_transient_error(seaweed_out: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    Meddling(monkeypatch, "complete_multipart_upload", lambda call, _: call(UploadId="00000000000000000000000000000000"))
    with pytest.raises(TransientStorageError, match=r"part\.bin: .* has no such object; run again"), seaweed_out.open("part.bin") as stream:
        stream.write(noise(2 * PART))
    assert seaweed_out.files == ()


@pytest.mark.s3
def test_a_part_that_was_stored_wrongly_is_sent_again(seaweed_out: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    torn = iter([True])

    def tear_once(call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        return call(Body=arguments["Body"][:-1]) if next(torn, False) else call()

    meddling = Meddling(monkeypatch, "upload_part", tear_once)
    data = noise(2 * PART)
    with seaweed_out.open("part.bin") as stream:
        stream.write(data)
    assert meddling.calls == 3
    assert read_or_none(f"{seaweed_out.url}/part.bin") == data


def _tear(call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    return call(Body=arguments["Body"][:-1])


def _flip(call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    return call(Body=bytes([arguments["Body"][0] ^ 1]) + arguments["Body"][1:])


@pytest.mark.s3
@pytest.mark.parametrize("operation", ["put_object", "upload_part"])
@pytest.mark.parametrize("damage", [_tear, _flip])
def test_a_file_that_the_server_keeps_storing_wrongly_is_never_whole(
    seaweed_out: Writer, monkeypatch: pytest.MonkeyPatch, operation: str, damage: Any
) -> None:
    """Torn before the client signs it: no checksum on the wire can tell."""
    meddling = Meddling(monkeypatch, operation, damage)
    size = PART - 7 if operation == "put_object" else 2 * PART
    sentence = rf"part\.bin: the server (confirmed {size} bytes and has \d+ other ones|lost bytes that it had confirmed); run again"
    with pytest.raises(TransientStorageError, match=sentence), seaweed_out.open("part.bin") as stream:
        stream.write(noise(size))
    assert meddling.calls
    assert seaweed_out.files == ()
    assert list_files(seaweed_out.url) == {}


@pytest.mark.s3
def test_where_etags_are_no_md5_the_file_is_read_back(seaweed_out: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a bucket that encrypts with KMS."""
    heads = Meddling(monkeypatch, "head_object", lambda call, _: call() | {"ETag": '"0123456789abcdef0123456789abcdef"'})
    with seaweed_out.open("part.bin") as stream:
        stream.write(noise(PART + 1))
    assert heads.calls == 1
    assert len(seaweed_out.files) == 1


@pytest.mark.s3
def test_keys_that_s3_could_not_delete_are_an_error_and_not_a_success(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bulk delete answers 200 and lists what it left."""
    refused = {"Errors": [{"Key": "root/x", "Code": "InternalError", "Message": "again, please"}]}
    deletes = Meddling(monkeypatch, "delete_objects", lambda call, _: refused if deletes.calls < 3 else call())
    Writer(f"{s3.root}/tree", scratch_url="").write_json("x.json", 1)
    remove_tree(f"{s3.root}/tree")
    assert deletes.calls == 3
    assert list_files(f"{s3.root}/tree") == {}
