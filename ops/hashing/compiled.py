"""How kernels are compiled: on first use, for this CPU, without the GIL, and kept for the next process.

Numba's cache looks at one file per function, so a caller would keep a stale copy of an edited callee from
another file. Here the cache folder carries the hash of every kernel source; all kernels live in this package.

Processes that start together want the same kernels: one compiles while the others wait, and read.
"""

import fcntl
import functools
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numba


@functools.cache
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
_COMPILING = threading.RLock()
_depth = 0


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the cache against every other process, from a caller's compilation to the end of its callees'.

    The lock is the process's (POSIX): a forked child has no part in it, and a killed holder leaves none.
    """
    global _depth
    with _COMPILING:
        if _depth or not _CACHED:
            yield
            return
        _depth += 1
        try:
            with (_cache_folder() / "lock").open("ab") as stream:
                with suppress(OSError):  # a file system without locks: two processes compile the same, and both are right
                    fcntl.lockf(stream, fcntl.LOCK_EX)
                yield
        finally:
            _depth -= 1


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function over numpy arrays. Integer arithmetic wraps; nothing is bounds-checked."""
    compiled: Any = numba.njit(nogil=True, cache=_CACHED, error_model="numpy")(function)
    compile_or_read = compiled.compile

    def compile_alone(signature: object) -> object:
        with _alone():
            return compile_or_read(signature)

    compiled.compile = compile_alone
    return compiled  # type: ignore[no-any-return]
