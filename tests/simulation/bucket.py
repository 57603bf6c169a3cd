"""An S3 bucket that loses requests and replies, answers 409, 412 and 503, keeps half of what it was sent, and shows
objects late. Real code talks to it through `s3://`; between any two calls the others may act.

One thing always holds, as on S3: a conditional create is decided once, whatever becomes of its reply.
"""

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from fsspec import AbstractFileSystem

from infra.storage.filesystem import S3_TRIES
from tests.simulation.actors import Scheduler

SLOW_S = 200.0  # longer than it takes to be thought dead


@dataclass
class Weather:
    """How storage behaves; all but the last two are chances per call.

    Attributes:
        lost_request, lost_reply: the call fails without, or in spite of, its effect: a time-out, or a 503.
        contended: a conditional create gets no reply and stays in flight for a while: until it comes to nothing, others get a 409.
        torn: of a data file, only half is kept, and only the reply's ETag tells.
        late: others see a write only after `late_s`.
        slow: the answer takes minutes, in which the world goes on.
        outage_s: from when until when nothing answers.
    """

    lost_request: float = 0.0
    lost_reply: float = 0.0
    contended: float = 0.0
    torn: float = 0.0
    late: float = 0.0
    slow: float = 0.0
    late_s: float = 5.0
    outage_s: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class _Hidden:
    """A write that only its writer sees so far; the others see what was there before."""

    until_s: float
    before: bytes | None
    writer: str


@dataclass
class Bucket:
    """What is stored, and who sees it.

    Attributes:
        on_change: told of each write and removal: key, what was there before, what is there now.
    """

    scheduler: Scheduler
    weather: Weather
    on_change: Callable[[str, bytes | None, bytes | None], None] = lambda key, before, after: None
    objects: dict[str, bytes] = field(default_factory=dict)
    _hidden: dict[str, _Hidden] = field(default_factory=dict)
    _in_flight_until_s: dict[str, float] = field(default_factory=dict)

    def visible(self, key: str) -> bytes | None:
        """The object as whoever asks sees it now."""
        hidden = self._hidden.get(key)
        if hidden is not None:
            if self.scheduler.now_s >= hidden.until_s:
                del self._hidden[key]
            elif hidden.writer != self._client():
                return hidden.before
        return self.objects.get(key)

    def visible_from_s(self, key: str) -> float:
        """From when on everybody sees it."""
        hidden = self._hidden.get(key)
        return self.scheduler.now_s if hidden is None else hidden.until_s

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix) and (key not in self._hidden or self.visible(key) is not None))

    def put(self, key: str, body: bytes) -> bytes:
        """Write; give what was kept."""
        with self._call():
            kept = body[: len(body) // 2] if "/." not in key and self._happens(self.weather.torn) else body
            self._store(key, kept)
        return kept

    def create(self, key: str, body: bytes) -> None:
        with self._call():
            if self.scheduler.now_s < self._in_flight_until_s.get(key, 0.0):
                raise _error(409, "ConditionalRequestConflict")
            if key in self.objects:
                raise _error(412, "PreconditionFailed")
            if self._happens(self.weather.contended):
                self._lose_in_flight(key)
            self._store(key, body)

    def delete(self, key: str) -> None:
        before = self.objects.pop(key, None)
        self._hidden.pop(key, None)
        if before is not None:
            self.on_change(key, before, None)

    @contextmanager
    def _call(self) -> Iterator[None]:
        self.scheduler.hand_over()
        self._fail(self.weather.lost_request)
        yield
        self.scheduler.hand_over(SLOW_S if self._happens(self.weather.slow) else 0.0)
        self._fail(self.weather.lost_reply)

    @contextmanager
    def reading(self) -> Iterator[None]:
        self.scheduler.hand_over(SLOW_S if self._happens(self.weather.slow) else 0.0)
        self._fail(self.weather.lost_request)
        yield

    def _lose_in_flight(self, key: str) -> NoReturn:
        """The client stops waiting, the server goes on for a while, and in the end it creates nothing."""
        self._in_flight_until_s[key] = self.scheduler.now_s + self.scheduler.random.uniform(0, 1.0)
        raise TimeoutError("simulated: no reply to a create that goes on")

    def _store(self, key: str, body: bytes) -> None:
        before, seen = self.objects.get(key), self.visible(key)
        self.objects[key] = body
        if self._happens(self.weather.late):
            self._hidden[key] = _Hidden(self.scheduler.now_s + self.scheduler.random.uniform(0, self.weather.late_s), seen, self._client())
        self.on_change(key, before, body)

    def _client(self) -> str:
        actor = self.scheduler.current()
        return "" if actor is None else actor.machine.name

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self.scheduler.current() is not None and self.scheduler.random.random() < chance

    def _fail(self, chance: float) -> None:
        if self.scheduler.current() is None:
            return
        begin, end = self.weather.outage_s
        if begin <= self.scheduler.now_s < end or self._happens(chance):
            raise _error(503, "SlowDown") if self.scheduler.random.random() < 0.5 else TimeoutError("simulated: storage did not answer")


class SimulatedS3(AbstractFileSystem):
    """What `infra.storage` asks of s3fs, on a simulated bucket."""

    protocol = "s3"
    retries = S3_TRIES  # nothing to limit here
    bucket: ClassVar[Bucket]

    def call_s3(self, operation: str, *, Bucket: str, Key: str = "", **arguments: Any) -> dict[str, Any]:
        return getattr(self, f"_{operation}")(f"{Bucket}/{Key}", **arguments)  # type: ignore[no-any-return]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        with self.bucket.reading():
            found = self.bucket.visible(path)
        if found is None:
            raise FileNotFoundError(path)
        return found[start:end]

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        with self.bucket.reading():
            keys = self.bucket.keys(f"{path}/")
        return sorted({f"{path}/{key.removeprefix(f'{path}/').partition('/')[0]}" for key in keys})

    def find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: Any) -> Any:
        with self.bucket.reading():
            return {key: {"size": len(self.bucket.visible(key) or b"")} for key in self.bucket.keys(f"{path}/")}

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        return io.BytesIO(self.cat_file(path))

    def _put_object(self, path: str, Body: bytes, IfNoneMatch: str | None = None) -> dict[str, Any]:
        if IfNoneMatch:
            self.bucket.create(path, Body)
            return {"ETag": _etag(Body)}
        return {"ETag": _etag(self.bucket.put(path, Body))}

    def _head_object(self, path: str) -> dict[str, Any]:
        stored = self.cat_file(path)
        return {"ContentLength": len(stored), "ETag": _etag(stored)}

    def _delete_object(self, path: str) -> dict[str, Any]:
        with self.bucket.reading():
            self.bucket.delete(path)
        return {}

    def _list_objects_v2(self, path: str, Prefix: str, MaxKeys: int) -> dict[str, Any]:
        with self.bucket.reading():
            return {"Contents": [{"Key": key.removeprefix(path)} for key in self.bucket.keys(f"{path}{Prefix}")[:MaxKeys]]}

    def _delete_objects(self, path: str, Delete: dict[str, Any]) -> dict[str, Any]:
        with self.bucket.reading():
            for entry in Delete["Objects"]:
                self.bucket.delete(f"{path}{entry['Key']}")
        return {}

    def _list_multipart_uploads(self, path: str, Prefix: str) -> dict[str, Any]:
        return {}


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


def _error(status: int, code: str) -> OSError:
    error = OSError(f"simulated: {status} {code}")
    error.response = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code}}  # type: ignore[attr-defined]
    return error
