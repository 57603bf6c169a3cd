"""Which fsspec filesystem a URL lies on, opened so that no stale listing can decide anything."""

from typing import Any

import fsspec


def open_filesystem(url: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The filesystem of a URL, with listing caches off, and the path inside it."""
    return fsspec.url_to_fs(url, **uncached(url))  # type: ignore[no-any-return]


def uncached(url: str) -> dict[str, Any]:
    """Options that switch directory-listing caches off: a stale listing must never decide anything."""
    return {"use_listings_cache": False} if url.startswith(("s3:", "s3a:")) else {}
