"""Bytes under the hash of what they were made from: exact bytes or a miss, and never a reason to fail.

Three tiers: memory, a directory on this machine, and an object store that all machines share. An entry carries the
SHA-256 of its value and the key it was stored under; whatever does not match is a miss. A tier that is missing,
read-only or away costs a recomputation and one logged line. Nothing is ever recorded as absent.
"""

import atexit
import hashlib
import logging
import os
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from infra.caches.age import KEPT_S, remove_older
from infra.storage.errors import StorageError
from infra.storage.objects import create_exclusive, read_or_none, replace

MAGIC = b"seaway-kv-1\n"
MEMORY_BYTES = 256 * 1024 * 1024  # of values; the least recently used go first
QUEUED_ENTRIES = 256  # on their way to the object store; above it a `put` drops the shared copy, not the caller's time
DRAIN_S = 10.0

_log = logging.getLogger(__name__)


class KvCache:
    """A cache for values that can be computed again.

    Args:
        directory: on this machine; None for none.
        url: in an object store, shared; None for none. `put` never waits for it.

    Keys are hex digests (`cache_key`); None as a key bypasses the cache. Use it as a context manager, or `close` it.
    """

    def __init__(self, directory: Path | None, url: str | None = None, *, memory_bytes: int = MEMORY_BYTES) -> None:
        self._directory = directory
        self._url = url
        self._memory = _Memory(memory_bytes)
        self._writer = _SharedWriter(url, self._lost) if url else None
        self._complaints: set[str] = set()
        atexit.register(self.close)

    def get(self, key: str | None) -> bytes | None:
        """The exact bytes that were put under this key, or None."""
        if key is None:
            return None
        if (value := self._memory.get(key)) is not None:
            return value
        for read, tell in ((self._from_directory, None), (self._from_store, self._into_directory)):
            entry = read(key)
            value = None if entry is None else unpacked(key, entry)
            if value is not None:
                self._memory.put(key, value)
                if tell is not None:
                    tell(key, entry or b"")
                return value
        return None

    def put(self, key: str | None, value: bytes) -> None:
        """Keep a value. Returns once it is in memory and in the directory; the object store gets it in the background."""
        if key is None:
            return
        entry = packed(key, value)
        self._memory.put(key, value)
        self._into_directory(key, entry)
        if self._writer is not None:
            self._writer.put(key, entry)

    def get_or_compute(self, key: str | None, compute: Callable[[], bytes]) -> bytes:
        """The cached value, else a computed one, which is kept."""
        value = self.get(key)
        if value is None:
            value = compute()
            self.put(key, value)
        return value

    def remove_old(self, kept_s: float = KEPT_S) -> int:
        """Remove entries that were written more than `kept_s` seconds ago, here and in the object store; gives how many."""
        removed = 0
        for tier, url in (("directory", self._directory), ("object store", self._url)):
            try:
                removed += 0 if url is None else remove_older(str(url), kept_s)
            except OSError as error:
                self._lost(tier, error)
        return removed

    def close(self, drain_s: float = DRAIN_S) -> int:
        """Wait at most `drain_s` seconds for the background writer; gives how many entries the object store did not get."""
        atexit.unregister(self.close)
        return 0 if self._writer is None else self._writer.close(drain_s)

    def __enter__(self) -> "KvCache":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _path(self, key: str) -> Path:
        assert self._directory is not None
        return self._directory / key[:2] / key

    def _from_directory(self, key: str) -> bytes | None:
        if self._directory is None:
            return None
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._lost("directory", error)
            return None

    def _into_directory(self, key: str, entry: bytes) -> None:
        if self._directory is None:
            return
        path = self._path(key)
        temporary = path.with_name(f".{uuid4().hex}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_bytes(entry)
                os.replace(temporary, path)
            finally:
                with suppress(OSError):
                    temporary.unlink()
        except OSError as error:
            self._lost("directory", error)

    def _from_store(self, key: str) -> bytes | None:
        if self._url is None:
            return None
        try:
            return read_or_none(object_url(self._url, key))
        except StorageError as error:
            self._lost("object store", error)
            return None

    def _lost(self, tier: str, error: Exception) -> None:
        if tier not in self._complaints:
            self._complaints.add(tier)
            where = self._directory if tier == "directory" else self._url
            _log.warning("the cache's %s %s can't be used; what it would hold is computed again: %s", tier, where, error)


def object_url(url: str, key: str) -> str:
    return f"{url.rstrip('/')}/{key[:2]}/{key}"


def packed(key: str, value: bytes) -> bytes:
    """An entry: magic, SHA-256 over key and value, value."""
    return MAGIC + _checksum(key, value) + value


def unpacked(key: str, entry: bytes) -> bytes | None:
    """The value of an entry that is whole and of this key, else None."""
    start = len(MAGIC) + 32
    value = entry[start:]
    return value if entry[:start] == MAGIC + _checksum(key, value) else None


def _checksum(key: str, value: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + value).digest()


class _Memory:
    """The most recently used values, up to a number of bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._values: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: str, value: bytes) -> None:
        with self._lock:
            self._size += len(value) - len(self._values.pop(key, b""))
            self._values[key] = value
            while self._size > self._limit:
                _, dropped = self._values.popitem(last=False)
                self._size -= len(dropped)


@dataclass(frozen=True)
class _Entry:
    key: str
    data: bytes


class _SharedWriter:
    """One thread that writes entries to the object store, in the order they came."""

    def __init__(self, url: str, lost: Callable[[str, Exception], None]) -> None:
        self._url = url
        self._lost = lost
        self._entries: queue.Queue[_Entry | None] = queue.Queue(QUEUED_ENTRIES)
        self._pending = 0
        self._dropped = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="kv cache", daemon=True)  # daemon: an exit never waits for a dead server
        self._thread.start()

    def put(self, key: str, data: bytes) -> None:
        with self._changed:
            try:
                self._entries.put_nowait(_Entry(key, data))
                self._pending += 1
            except queue.Full:
                self._dropped += 1

    def close(self, drain_s: float) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self._pending == 0, timeout=drain_s)
            left = self._pending + self._dropped
        with suppress(queue.Full):
            self._entries.put_nowait(None)
        if left == 0:
            self._thread.join(timeout=1)
        return left

    def _run(self) -> None:
        while (entry := self._entries.get()) is not None:
            try:
                url = object_url(self._url, entry.key)
                if not create_exclusive(url, entry.data) and unpacked(entry.key, read_or_none(url) or b"") is None:
                    replace(url, entry.data)  # what lies there is damaged
            except StorageError as error:
                self._lost("object store", error)
                with self._changed:
                    self._dropped += 1
            finally:
                with self._changed:
                    self._pending -= 1
                    self._changed.notify_all()
