"""A file streamed to S3: in one PUT if it is small, in parts otherwise, and verified before anybody counts on it.

Each part's ETag is its MD5 (unless the bucket encrypts with KMS), a finished upload's is the MD5 of those. So what
the server keeps is known without reading it back; where an ETag is no MD5, the object is read back and hashed.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fsspec import AbstractFileSystem

from infra.storage.errors import StorageError, TransientStorageError, error_code, retried

PART_BYTES = 32 * 1024 * 1024  # one request; S3 wants 5 MiB or more, and a worker holds one part at a time
LOST_PARTS = {"EntityTooSmall", "InvalidPart", "InvalidPartOrder"}  # ours are large enough, and in order
PARTS_OF_A_SIZE = 2000  # then the next ones are twice as large: S3 takes 10,000 parts and 5 TiB, this reaches 1.9 TiB


class S3Upload:
    """One object on its way to S3. Nobody sees it before `commit`; after `discard` nothing of it is left.

    Args:
        read_back: gives the SHA-256 of the stored object, in hex; asked only where ETags prove nothing.
    """

    def __init__(self, filesystem: AbstractFileSystem, path: str, url: str, read_back: Callable[[int], str]) -> None:
        self._filesystem = filesystem
        self._bucket, _, self._key = path.partition("/")
        self._url = url
        self._read_back = read_back
        self._buffer = bytearray()
        self._upload_id: str | None = None
        self._etags: list[str] = []
        self._last_etag = ""
        self._perhaps_visible = False
        self._md5s: list[bytes] = []

    def write(self, data: memoryview) -> None:
        """Take the next bytes; sends whole parts on.

        Raises:
            StorageError: the server refused a part, or stayed away.
        """
        self._buffer += data
        while len(self._buffer) > (size := PART_BYTES << len(self._etags) // PARTS_OF_A_SIZE):
            part = bytes(memoryview(self._buffer)[:size])
            del self._buffer[:size]
            self._send_part(part)

    def commit(self, size: int, sha256: str) -> None:
        """Make the object visible, and verify that the server has `size` bytes with this SHA-256.

        Raises:
            TransientStorageError: the server has something else, or stayed away; the bytes must be written again.
            PermanentStorageError: the server refuses.
        """
        if self._upload_id is None:
            self._perhaps_visible = True
            body = bytes(self._buffer)
            md5 = hashlib.md5(body, usedforsecurity=False).hexdigest()
            if not self._sent("put_object", body, md5):
                self._verify(size, sha256, md5)
        else:
            self._send_part(bytes(self._buffer))
            self._perhaps_visible = True
            self._complete()
            joined = hashlib.md5(b"".join(self._md5s), usedforsecurity=False).hexdigest()
            self._verify(size, sha256, f"{joined}-{len(self._md5s)}")
        self._buffer.clear()

    def discard(self) -> None:
        """Drop what was sent. Never raises, and tries once: what could not be dropped goes with the attempt (`remove_tree`)."""
        self._buffer.clear()
        if self._upload_id is not None:
            self._drop("abort_multipart_upload", UploadId=self._upload_id)
        if self._perhaps_visible:
            self._drop("delete_object")

    def _drop(self, operation: str, **arguments: Any) -> None:
        with suppress(Exception):
            self._filesystem.call_s3(operation, Bucket=self._bucket, Key=self._key, **arguments)

    def _send_part(self, part: bytes) -> None:
        if self._upload_id is None:
            self._upload_id = self._call("create_multipart_upload")["UploadId"]
        md5 = hashlib.md5(part, usedforsecurity=False)
        self._sent("upload_part", part, md5.hexdigest(), UploadId=self._upload_id, PartNumber=len(self._etags) + 1)
        self._etags.append(self._last_etag)
        self._md5s.append(md5.digest())

    def _sent(self, operation: str, body: bytes, md5: str, **arguments: Any) -> bool:
        """Send bytes, once more if the server stored others; whether its ETag proves that it has these. One that is no MD5 never does."""
        for _ in range(2):
            self._last_etag = self._call(operation, Body=body, **arguments)["ETag"]
            if self._last_etag.strip('"') == md5:
                return True
        return False

    def _complete(self) -> None:
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(self._etags, start=1)]
        try:
            self._call("complete_multipart_upload", UploadId=self._upload_id, MultipartUpload={"Parts": parts})
        except FileNotFoundError as error:
            if error_code(error) != "NoSuchUpload":
                raise
            # An earlier try completed it and its reply was lost, or somebody aborted it: `_verify` finds out which.
        except StorageError as error:
            if error_code(error.__cause__ or error) in LOST_PARTS:
                raise TransientStorageError(f"can't write {self._url}: the server lost bytes that it had confirmed; run again") from error
            raise

    def _verify(self, size: int, sha256: str, etag: str) -> None:
        try:
            stored = self._call("head_object")
        except FileNotFoundError:
            raise TransientStorageError(f"can't write {self._url}: the server confirmed it and has no such object; run again") from None
        if stored["ContentLength"] == size and (stored["ETag"].strip('"') == etag or self._read_back(size) == sha256):
            return
        raise TransientStorageError(
            f"can't write {self._url}: the server confirmed {size} bytes and has {stored['ContentLength']} other ones; run again"
        )

    def _call(self, operation: str, **arguments: Any) -> Any:
        return retried("write", self._url, lambda: self._filesystem.call_s3(operation, Bucket=self._bucket, Key=self._key, **arguments))
