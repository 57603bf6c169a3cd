"""S3 as the protocols need it: conditional create, whole reads, listings of our own, removal that reports what it left.

s3fs's own exclusive mode answers with different exceptions on different servers (measured: FileExistsError on
moto, OSError(EINVAL) on SeaweedFS), so the HTTP status is read here. Its `rm` drops the errors that S3's bulk
delete lists in a reply of status 200, so keys are deleted here.
"""

from collections.abc import Iterator
from typing import Any

from fsspec import AbstractFileSystem

from infra.storage.errors import TransientStorageError, http_status

EXISTS = 412  # PreconditionFailed: an object is there, perhaps our own
CONFLICT = 409  # ConditionalRequestConflict: another create was in flight; it may yet fail
KEYS_A_DELETE = 1000  # S3's limit


def is_s3(filesystem: AbstractFileSystem) -> bool:
    """Asked by protocol, so that a local root does not import s3fs."""
    protocol = filesystem.protocol
    return "s3" in ((protocol,) if isinstance(protocol, str) else protocol)


def create(filesystem: AbstractFileSystem, path: str, data: bytes) -> bool:
    """Create an object with `data`; False if one is there or another create is in flight."""
    bucket, _, key = path.partition("/")
    try:
        filesystem.call_s3("put_object", Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
    except OSError as error:
        if http_status(error) in (EXISTS, CONFLICT):
            return False
        raise
    return True


def read(filesystem: AbstractFileSystem, path: str) -> bytes:
    """A whole object in one GET: s3fs's concurrent read asks for the size first, and could mix two versions of a large object."""
    return filesystem.cat_file(path, max_concurrency=1)  # type: ignore[no-any-return]


def put(filesystem: AbstractFileSystem, path: str, data: bytes) -> None:
    """Write an object of at most 5 GB in one PUT, whatever its size: it is there whole or not at all."""
    bucket, _, key = path.partition("/")
    filesystem.call_s3("put_object", Bucket=bucket, Key=key, Body=data)


def remove_tree(filesystem: AbstractFileSystem, path: str) -> None:
    """Remove the object `path`, all objects below it, and the parts of uploads below it that were never completed."""
    bucket, _, key = path.rstrip("/").partition("/")
    below = f"{key}/" if key else ""
    while keys := [key, *_some_keys(filesystem, bucket, below)] if key else _some_keys(filesystem, bucket, below):
        _delete(filesystem, bucket, keys)
        if len(keys) < KEYS_A_DELETE:
            break
    for upload in unfinished_uploads(filesystem, bucket, below):
        filesystem.call_s3("abort_multipart_upload", Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])


def unfinished_uploads(filesystem: AbstractFileSystem, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    """Multipart uploads under a prefix that were neither completed nor aborted: `Key`, `UploadId`. Their parts cost space, unseen."""
    markers: dict[str, str] = {}
    while True:
        page = filesystem.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix, **markers)
        yield from page.get("Uploads", [])
        if not page.get("IsTruncated"):
            return
        markers = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}


def _some_keys(filesystem: AbstractFileSystem, bucket: str, prefix: str) -> list[str]:
    page = filesystem.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=KEYS_A_DELETE - 1)
    return [entry["Key"] for entry in page.get("Contents", [])]


def _delete(filesystem: AbstractFileSystem, bucket: str, keys: list[str]) -> None:
    reply = filesystem.call_s3("delete_objects", Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True})
    if errors := [error for error in reply.get("Errors", []) if error.get("Code") != "NoSuchKey"]:
        first = errors[0]
        raise TransientStorageError(
            f"can't remove s3://{bucket}/{first.get('Key')}: {first.get('Code')} ({first.get('Message')}), and {len(errors) - 1} more; "
            "check the bucket's policy and its server, then run again"
        )
