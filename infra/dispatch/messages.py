"""What a job says while it runs: Dagster Pipes' message protocol in numbered chunks, over any fsspec filesystem.

Each chunk `messages/000001.jsonl`, `000002.jsonl`, ... is written whole; a stock Pipes blob-store reader can
consume them. Messages inform people. Nothing is decided by them: the truth is the manifest.
"""

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.storage.errors import StorageError
from infra.storage.objects import read_or_none, replace

PROTOCOL_FIELD = "__dagster_pipes_version"
PROTOCOL_VERSION = "0.1"  # of dagster_pipes; a test compares both, so that this module needn't import it
FLUSH_INTERVAL_S = 0.5
MAX_PENDING = 10_000  # lines kept while storage refuses; above it, old ones are dropped and counted


@dataclass(frozen=True)
class Message:
    """One message of the Pipes protocol. A custom message with `kind: progress` is a `Progress` report."""

    method: str
    params: Mapping[str, Any]

    @property
    def progress(self) -> Mapping[str, Any] | None:
        """done, total, unit, per_second, eta_s, measures - or None for any other message."""
        payload = self.params.get("payload")
        return payload if isinstance(payload, Mapping) and payload.get("kind") == "progress" else None

    @property
    def level(self) -> str:
        """A level name of Python's `logging`."""
        return str(self.params["level"]) if self.method == "log" else "INFO" if self.progress else "DEBUG"

    @property
    def text(self) -> str:
        """The message as a person reads it."""
        if self.method == "log":
            return str(self.params["message"])
        if self.progress is not None:
            return progress_text(self.progress)
        if self.method == "closed" and self.params.get("exception"):
            return str(self.params["exception"]["message"])
        return {"opened": "the job's process has started", "closed": "the job's process has ended"}.get(
            self.method, json.dumps(self.params)
        )


def progress_text(progress: Mapping[str, Any]) -> str:
    """`12,000 of 50,000 documents, 3,400 documents/s, 11 s left, loss 2.31`."""
    unit = progress["unit"]
    of_total = f" of {progress['total']:,}" if progress.get("total") is not None else ""
    parts = [f"{progress['done']:,}{of_total} {unit}"]
    if progress.get("per_second") is not None:
        parts.append(f"{_rounded(progress['per_second'])} {unit}/s")
    if progress.get("eta_s") is not None:
        parts.append(f"{_duration(progress['eta_s'])} left")
    parts += [f"{name} {value:.4g}" for name, value in progress.get("measures", {}).items()]
    return ", ".join(parts)


class MessageWriter:
    """The job's side. Writes at once, then at most every `FLUSH_INTERVAL_S`, and at the end.

    Storage that refuses a chunk delays messages; it never fails the job.
    """

    def __init__(self, url: str, *, interval_s: float = FLUSH_INTERVAL_S) -> None:
        self._url = url
        self._interval_s = interval_s
        self._pending: list[str] = []
        self._dropped = 0
        self._next_chunk = 1
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._flush_until_closed, name="messages", daemon=True)
        self._thread.start()
        self._put("opened", {"extras": {}})

    def log(self, text: str, level: str = "INFO") -> None:
        self._put("log", {"message": text, "level": level})

    def report(self, payload: Mapping[str, Any]) -> None:
        """Send a custom message."""
        self._put("report_custom_message", {"payload": payload})

    def close(self, error: BaseException | None = None) -> None:
        """Send `closed` and write everything that is left."""
        params: dict[str, Any] = {}
        if error is not None:
            params["exception"] = {"name": type(error).__name__, "message": str(error), "stack": [], "cause": None, "context": None}
        self._put("closed", params)
        self._closing.set()
        self._thread.join()

    def _put(self, method: str, params: Mapping[str, Any]) -> None:
        line = json.dumps({PROTOCOL_FIELD: PROTOCOL_VERSION, "method": method, "params": params})
        with self._lock:
            self._pending.append(line)
        self._wake.set()

    def _flush_until_closed(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            self._wake.clear()
            self._flush()
            self._closing.wait(self._interval_s)
        self._flush()
        if self._dropped:
            print(f"{self._url}: {self._dropped} messages were dropped while storage refused them", file=sys.stderr)

    def _flush(self) -> None:
        with self._lock:
            lines, self._pending = self._pending, []
        if not lines:
            return
        try:
            replace(f"{self._url}/{self._next_chunk:06d}.jsonl", "\n".join(lines).encode())
            self._next_chunk += 1
        except StorageError as error:
            print(f"messages are late: {error}", file=sys.stderr)
            self._keep(lines)

    def _keep(self, lines: list[str]) -> None:
        with self._lock:
            kept = lines + self._pending
            excess = max(0, len(kept) - MAX_PENDING)
            del kept[1 : 1 + excess]  # never the first: a stock reader waits for `opened`
            self._dropped += excess
            self._pending = kept


class MessageReader:
    """The dispatcher's side: no thread; `drain` gives everything that is there and remembers how far it came."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.next_chunk = 1

    def drain(self) -> Iterator[Message]:
        while (chunk := read_or_none(f"{self._url}/{self.next_chunk:06d}.jsonl")) is not None:
            self.next_chunk += 1
            for line in chunk.decode().splitlines():
                message = json.loads(line)
                yield Message(message["method"], message["params"] or {})


def messages_url(attempt_url: str) -> str:
    return f"{attempt_url}/messages"


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
