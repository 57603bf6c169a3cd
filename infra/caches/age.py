"""Which stored files are old, by the time that storage itself gives them."""

import time
from datetime import datetime
from typing import Any

from infra.storage.errors import retried
from infra.storage.filesystem import open_filesystem
from infra.storage.objects import remove_tree

KEPT_S = 30 * 24 * 3600.0


def remove_older(url: str, kept_s: float = KEPT_S) -> int:
    """Remove every file below a URL that is older than `kept_s` seconds; gives how many. For caches: what goes is made again.

    Raises:
        StorageError: storage refused, or stayed away.
    """
    filesystem, path = open_filesystem(url)
    found: dict[str, dict[str, Any]] = retried("list", url, lambda: filesystem.find(path, detail=True))
    old = [name for name, entry in found.items() if (at := _written_at(entry)) is not None and time.time() - at > kept_s]
    for name in old:
        remove_tree(filesystem.unstrip_protocol(name))
    return len(old)


def _written_at(entry: dict[str, Any]) -> float | None:
    found = entry.get("LastModified") or entry.get("mtime") or entry.get("created")
    return found.timestamp() if isinstance(found, datetime) else found
