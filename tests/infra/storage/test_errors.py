"""Which errors are worth another try, and what a person reads."""

import errno
import os

import pytest
from fsspec.exceptions import FSTimeoutError

from infra.storage.errors import PermanentStorageError, StorageError, TransientStorageError, as_storage_error, retried, storage_errors


def http_error(status: int, code: str) -> OSError:
    """As s3fs raises it: an OSError caused by a botocore ClientError."""
    from botocore.exceptions import ClientError

    error = OSError(errno.EIO, f"{code} from the server")
    error.__cause__ = ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")
    return error


def botocore_error(name: str) -> Exception:
    import botocore.exceptions

    error: Exception = getattr(botocore.exceptions, name)(endpoint_url="http://127.0.0.1", error="gone")
    return error


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        FSTimeoutError(),
        ConnectionResetError(),
        OSError(errno.ESTALE, "Stale file handle"),
        http_error(409, "OperationAborted"),
        http_error(429, "TooManyRequests"),
        http_error(500, "InternalError"),
        http_error(503, "SlowDown"),
        http_error(400, "RequestTimeout"),
        botocore_error("EndpointConnectionError"),
        botocore_error("ReadTimeoutError"),
        botocore_error("HTTPClientError"),
    ],
    ids=repr,
)
def test_what_may_pass_is_transient(error: Exception) -> None:
    found = as_storage_error("read", "s3://bucket/x", error)
    assert isinstance(found, TransientStorageError)
    assert str(found).startswith("can't read s3://bucket/x: ")
    assert str(found).endswith("check that it runs, then run again")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "the disk is full; free space there or choose another root"),
        (PermissionError(errno.EACCES, "denied"), "permission denied; give this user write access or choose another root"),
        (http_error(403, "InvalidAccessKeyId"), "the credentials do not allow it (InvalidAccessKeyId); check the access key"),
        (http_error(404, "NoSuchBucket"), "the bucket does not exist; create it or correct the root"),
        (http_error(400, "InvalidArgument"), "InvalidArgument from the server; check the root and its server"),
        (http_error(501, "NotImplemented"), "NotImplemented from the server; check the root and its server"),
        (botocore_error("NoCredentialsError"), "no credentials were found; set AWS_ACCESS_KEY_ID"),
    ],
    ids=repr,
)
def test_what_stays_is_permanent_and_says_what_to_do(error: Exception, advice: str) -> None:
    found = as_storage_error("write", "s3://bucket/x", error)
    assert isinstance(found, PermanentStorageError)
    assert advice in str(found)
    assert "\n" not in str(found)


def test_permanent_errors_are_tried_once_and_transient_ones_until_they_pass() -> None:
    calls = []

    def operation(error: Exception | None) -> str:
        calls.append(error)
        if error and len(calls) < 3:
            raise error
        return "done"

    assert retried("read", "x", lambda: operation(TimeoutError())) == "done"
    assert len(calls) == 3
    calls.clear()
    with pytest.raises(PermanentStorageError, match="the disk is full"):
        retried("read", "x", lambda: operation(OSError(errno.ENOSPC, "full")))
    assert len(calls) == 1


@pytest.mark.parametrize("error", [ValueError("a bug"), FileNotFoundError("x"), KeyboardInterrupt()])
def test_what_is_not_the_fault_of_storage_passes_unchanged(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, storage_errors("read", "x"):
        raise error
    assert caught.value is error


def test_an_error_that_is_typed_already_keeps_its_sentence() -> None:
    inner = PermanentStorageError("can't create y: the disk is full")
    with pytest.raises(StorageError) as caught, storage_errors("read", "x"):
        raise inner
    assert caught.value is inner
