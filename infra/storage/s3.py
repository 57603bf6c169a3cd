"""Conditional create on S3: one PutObject with `If-None-Match: *`.

s3fs's own exclusive mode answers with different exceptions on different servers (measured: FileExistsError on
moto, OSError(EINVAL) on SeaweedFS), so the HTTP status is read here.
"""

from fsspec import AbstractFileSystem

from infra.storage.errors import http_status

EXISTS = 412  # PreconditionFailed: an object is there, perhaps our own
CONFLICT = 409  # ConditionalRequestConflict: another create was in flight; it may yet fail


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
