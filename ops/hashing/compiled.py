"""How kernels are compiled: on first use, for this CPU, without the GIL, and kept for the next process.

Numba's cache looks at one file per function, so a caller would keep a stale copy of an edited callee from
another file. Here the cache folder carries the hash of every kernel source; all kernels live in this package.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba


def _cache_folder() -> Path:
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "seaway" / f"kernels-{digest}"


def _can_cache() -> bool:
    try:
        folder = _cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return False  # no home or a read-only one: each process compiles again; seconds lost, nothing else
    if not os.access(folder, os.W_OK):
        return False
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    return True


_CACHED = _can_cache()


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function over numpy arrays. Integer arithmetic wraps; nothing is bounds-checked."""
    return numba.njit(nogil=True, cache=_CACHED, error_model="numpy")(function)
