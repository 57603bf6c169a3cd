"""The key of a cached value: everything that it was made from, or None where that can't be told."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def cache_key(sources: Sequence[Path], lock: Path | None, spec: Any, device: str | None) -> str | None:
    """64 hex over the content of the declared sources, the dependency lock, the spec and the observed device.

    Args:
        sources: the files whose code makes the value. Their names count, their folder doesn't.
        lock: the file that pins every dependency; None if this process can't tell what it runs with.
        spec: JSON values; what is computed.
        device: as observed (such as "NVIDIA H200"), not as configured; None if it can't be told.

    Returns:
        None, which bypasses the cache, where any of it is unknown: a wrong hit costs more than a recomputation.
    """
    if lock is None or device is None or not sources:
        return None
    try:
        content = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sources}
        locked = hashlib.sha256(lock.read_bytes()).hexdigest()
        made_from: Mapping[str, Any] = {"sources": content, "lock": locked, "spec": spec, "device": device}
        canonical = json.dumps(made_from, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (OSError, TypeError, ValueError):
        return None
    if len(content) != len(sources):
        return None  # two of one name: which is which can't be told
    return hashlib.sha256(canonical.encode()).hexdigest()
