"""What can go wrong with storage, as two types: worth another try, or not.

A caller decides on the type alone. The message is one sentence: what failed, where, what to do.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tenacity


class StorageError(OSError):
    """Storage refused or lost an operation."""


class TransientStorageError(StorageError):
    """The same call may succeed later: a time-out, a throttled request, a server that restarts."""


class PermanentStorageError(StorageError):
    """The same call fails again until a person changes something: full disk, read-only root, no permission."""


ATTEMPTS = 7
GIVE_UP_AFTER_S = 90  # no new try after it: one try against a server that swallows requests takes 15 s a time-out, several times
FIRST_WAIT_S = 0.05  # random exponential: 7 attempts wait ~3 s on average and 6.3 s at most, more than a failover of SeaweedFS or S3 needs

ADVICE = {
    errno.ENOSPC: "the disk is full; free space there or choose another root",
    errno.EDQUOT: "the disk quota is used up; free space there or choose another root",
    errno.EROFS: "the file system is mounted read-only; choose a root that can be written",
    errno.EACCES: "permission denied; give this user write access or choose another root",
    errno.EPERM: "operation not permitted; give this user write access or choose another root",
    errno.EEXIST: "a parent of this path is a file, not a directory; choose another root",
    errno.ENOTDIR: "a parent of this path is a file, not a directory; choose another root",
    errno.EISDIR: "a directory lies where a file should be; remove it or choose another root",
    errno.ENAMETOOLONG: "the name is too long for this file system; shorten the asset or partition key",
}
TRANSIENT_ERRNOS = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTUNREACH,
    errno.EINTR,
    errno.EIO,  # network file systems answer it while their server is away
    errno.ENETUNREACH,
    errno.ENOLCK,
    errno.EPIPE,
    errno.ESTALE,
    errno.ETIMEDOUT,
    121,  # EREMOTEIO, which macOS does not have
}
TRANSIENT_STATUSES = {408, 409, 425, 429, 500, 502, 503, 504}
TRANSIENT_CODES = {
    *("RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded"),
    *("BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch"),  # our bytes were torn on their way
}
NETWORK_PACKAGES = {"aiobotocore", "aiohttp", "botocore"}  # recognised by name, so that a local root imports none of them
TRANSIENT_NETWORK_ERRORS = {
    "ClientConnectionError",
    "ClientConnectorError",
    "ClientOSError",
    "ClientPayloadError",
    "ConnectTimeoutError",
    "ConnectionClosedError",
    "EndpointConnectionError",
    "FlexibleChecksumError",  # the server's bytes were torn on their way
    "HTTPClientError",
    "IncompleteReadError",
    "ReadTimeoutError",
    "ResponseParserError",  # half an XML
    "ResponseStreamingError",
    "ServerDisconnectedError",
    "ServerTimeoutError",
}


def http_status(error: BaseException) -> int | None:
    """The HTTP status behind an error of an S3 client, or None."""
    status = _response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None


def error_code(error: BaseException) -> str | None:
    """The S3 error code (`NoSuchBucket`, `SlowDown`, ...) behind an error, or None."""
    code = _response(error).get("Error", {}).get("Code")
    return code if isinstance(code, str) else None


@contextmanager
def storage_errors(action: str, url: str) -> Iterator[None]:
    """Turn the errors of storage inside the block into the two types; `FileNotFoundError` of an object passes."""
    try:
        yield
    except Exception as error:
        if not _is_of_storage(error):
            raise
        raise as_storage_error(action, url, error) from error


def as_storage_error(action: str, url: str, error: BaseException) -> StorageError:
    """The typed error for a failed `action` on `url`."""
    kind = TransientStorageError if _is_transient(error) else PermanentStorageError
    return kind(f"can't {action} {url}: {_reason(error)}")


def retried[T](action: str, url: str, operation: Callable[[], T]) -> T:
    """Run an operation, again while it fails transiently.

    Raises:
        TransientStorageError: every try failed, the last one with this.
        PermanentStorageError: trying again is pointless.
    """

    def once() -> T:
        with storage_errors(action, url):
            return operation()

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(TransientStorageError),
        stop=tenacity.stop_after_attempt(ATTEMPTS) | tenacity.stop_after_delay(GIVE_UP_AFTER_S),
        wait=tenacity.wait_random_exponential(multiplier=FIRST_WAIT_S, max=5),
        reraise=True,
    )
    return retrying(once)


def _response(error: BaseException) -> dict[str, Any]:
    for found in (error, error.__cause__):
        response = getattr(found, "response", None)
        if isinstance(response, dict):
            return response
    return {}


def _is_of_storage(error: BaseException) -> bool:
    if isinstance(error, StorageError):
        return False
    if isinstance(error, FileNotFoundError):
        return error_code(error) == "NoSuchBucket"
    return isinstance(error, OSError) or _package(error) in NETWORK_PACKAGES


def _is_transient(error: BaseException) -> bool:
    status = http_status(error)
    if status is not None:
        return status in TRANSIENT_STATUSES or error_code(error) in TRANSIENT_CODES
    if _package(error) in NETWORK_PACKAGES:
        return any(base.__name__ in TRANSIENT_NETWORK_ERRORS for base in type(error).__mro__)
    return isinstance(error, TimeoutError | ConnectionError) or getattr(error, "errno", None) in TRANSIENT_ERRNOS


def _reason(error: BaseException) -> str:
    if error_code(error) == "NoSuchBucket":
        return "the bucket does not exist; create it or correct the root"
    if http_status(error) == 403:
        return f"the credentials do not allow it ({error_code(error)}); check the access key and the bucket's policy"
    if type(error).__name__ in {"NoCredentialsError", "PartialCredentialsError"}:
        return "no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile"
    advice = ADVICE.get(getattr(error, "errno", None) or 0)
    if advice and http_status(error) is None:
        return advice
    detail = " ".join(str(error).split()) or type(error).__name__
    if _is_transient(error):
        return f"{detail}; storage did not answer in time or was busy; check that it runs, then run again"
    return f"{detail}; check the root and its server"


def _package(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]
