"""Which fsspec filesystem a URL lies on, opened so that no stale listing can decide anything."""

from typing import Any

import fsspec

S3_PROTOCOLS = ("s3", "s3a")
USERS_PROTOCOL = "users"
WITHOUT_CACHES = ("", "file", "local", "memory", USERS_PROTOCOL)
S3_TRIES = 2  # of botocore, of s3fs around it, and of s3fs around a whole read: 8 x 15 s at most; `errors.retried` tries on

fsspec.register_implementation(USERS_PROTOCOL, "infra.storage.users.UsersFileSystem")  # imported when a URL asks for it


def open_filesystem(url: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The filesystem of a URL, with listing caches off, and the path inside it."""
    filesystem, path = fsspec.url_to_fs(url, **uncached(url))
    if _protocol(url) in S3_PROTOCOLS and filesystem.retries != S3_TRIES:
        _limit_waiting(filesystem)
    return filesystem, path


def uncached(url: str) -> dict[str, Any]:
    """Options that switch directory-listing caches off: a stale listing must never decide anything."""
    protocol = _protocol(url)
    if protocol in S3_PROTOCOLS:
        return {"use_listings_cache": False, "config_kwargs": {"retries": {"mode": "standard", "total_max_attempts": S3_TRIES}}}
    return {} if protocol in WITHOUT_CACHES else {"use_listings_cache": False}


def _limit_waiting(filesystem: fsspec.AbstractFileSystem) -> None:
    """A server that swallows requests must end in an error, soon.

    By default 4 x 5 x 5 tries of 15 s each are 25 minutes. And a body that is announced (`Expect: 100-continue`, botocore's
    habit) is held back by aiohttp until the server asks for it, without any time-out: a PUT to a silent server never
    returned (measured).
    """
    from botocore.handlers import add_expect_header  # type: ignore[import-untyped]

    filesystem.s3.meta.events.unregister("before-call.s3", add_expect_header)
    filesystem.retries = S3_TRIES


def _protocol(url: str) -> str:
    """Empty for a plain path, and for chains (`dir::file://x`), whose filesystems take options of their own."""
    head, separator, _ = url.partition("://")
    return head if separator and "::" not in url else ""
