"""Leases: who is building a recipe. The attempt number is the fencing token.

    {address}/.attempts/000003/claim.json   created exclusively by whoever takes attempt 3
                               beat.json    overwritten by its holder while it lives
                               end.json     created once: how attempt 3 ended

A higher token fences every lower one: its holder must stop, and publication refuses it. Whether a silent holder is
dead is judged by how long *its beat has not changed on the observer's own monotonic clock*; no two machines' clocks
are ever compared.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, JsonValue

from infra.artifacts.manifest import canonical_json
from infra.storage.objects import create_exclusive, list_names, read_or_none, replace

ATTEMPTS_FOLDER = ".attempts"


class LeaseHeld(RuntimeError):  # noqa: N818 - a state of the world, answered by waiting or attaching
    """Somebody else claimed this attempt number first."""


class LeaseLost(RuntimeError):  # noqa: N818
    """A higher token exists, or the claim is not ours: stop working, publish nothing."""


class AttemptRecord(BaseModel):
    """One attempt as storage knows it; `ended` is None while nobody recorded its end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: int
    uid: str
    extra: dict[str, JsonValue] = {}
    ended: str | None = None
    detail: JsonValue = None


def attempts(address: str, *, after: int = 0, known: Mapping[int, AttemptRecord] = MappingProxyType({})) -> list[AttemptRecord]:
    """Every attempt at an address, by token. The last one holds the lease unless it ended.

    Args:
        after: leave out attempts up to this token.
        known: records by token that ended: what ended never changes, so they aren't read again.
    """
    records = (known.get(token) or _record(address, token) for token in _tokens(address) if token > after)
    return [record for record in records if record is not None]


def newest_attempt(address: str) -> AttemptRecord | None:
    """The last attempt at an address, or None; reads it alone, however many came before it."""
    records = (_record(address, token) for token in reversed(_tokens(address)))
    return next((record for record in records if record is not None), None)


def claim(address: str, *, uid: str, after: int, extra: Mapping[str, JsonValue] | None = None) -> "Lease":
    """Take attempt `after + 1`, where `after` is the newest token the caller has seen (0 for none).

    Args:
        uid: the new attempt's 16 hex, minted for this call alone: a retry with it finds its own claim.
        extra: what others should know of the attempt (host, backend, job id).

    Raises:
        LeaseHeld: another dispatcher took that attempt first; read `attempts` again.
        LeaseLost: later attempts exist already.
    """
    token = after + 1
    claimed = {"token": token, "uid": uid, "extra": dict(extra or {})}
    if not create_exclusive(f"{_folder(address, token)}/claim.json", canonical_json(claimed)):
        holder = _record(address, token)
        raise LeaseHeld(
            f"{address}: attempt {token} was claimed by {holder.uid if holder else 'another'}; attach to it or wait for its end"
        )
    lease = Lease(address, token, uid)
    lease.require_current()
    return lease


def read_beat(address: str, token: int) -> str | None:
    """The newest beat of an attempt, an opaque value that changes with each beat; None before the first."""
    beat = read_or_none(f"{_folder(address, token)}/beat.json")
    return None if beat is None else beat.decode()


@dataclass
class Lease:
    """The right of one attempt to publish at one address, for as long as no higher token exists."""

    address: str
    token: int
    uid: str
    _holder: str = field(default_factory=lambda: uuid4().hex[:16], repr=False)  # tells this process's beats from its predecessor's
    _beats: int = field(default=0, repr=False)

    @classmethod
    def reopen(cls, address: str, token: int, uid: str) -> "Lease":
        """The lease in the process of the job, which got (token, uid) from its dispatcher.

        Raises:
            LeaseLost: the claim is missing or another attempt's, its end is recorded already (a dispatcher may stand still
                between claiming and submitting for so long that a sweep took its attempt for lost), or a higher token exists.
        """
        record = _record(address, token)
        if record is None or record.uid != uid:
            found = "no claim" if record is None else f"attempt {record.uid}"
            raise LeaseLost(f"{address}: token {token} should belong to attempt {uid}, but storage has {found}; stop this job")
        if record.ended is not None:
            raise LeaseLost(f"{address}: attempt {token} ({uid}) ended as {record.ended} before it started; stop this job")
        lease = cls(address, token, uid)
        lease.require_current()
        return lease

    def is_current(self) -> bool:
        """No higher token was claimed. Asked of storage at every call."""
        return self._successor() is None

    def require_current(self) -> None:
        """Raise unless this lease is current.

        Raises:
            LeaseLost: names the attempt that took over.
        """
        successor = self._successor()
        if successor is not None:
            raise LeaseLost(
                f"{self.address}: attempt {self.token} ({self.uid}) was fenced by attempt {successor.token} ({successor.uid}); "
                "stop it, and publish nothing"
            )

    def beat(self) -> None:
        """Say that work goes on.

        Raises:
            LeaseLost: this attempt was fenced; its work must end.
        """
        self.require_current()
        self._beats += 1
        replace(f"{_folder(self.address, self.token)}/beat.json", canonical_json({"holder": self._holder, "beat": self._beats}))

    def end(self, reason: str, detail: JsonValue = None) -> bool:
        """Record how this attempt ended. The first record stays.

        Returns:
            Whether this call's record is the one that stands.
        """
        ended = {"reason": reason, "detail": detail, "by": self._holder}
        return create_exclusive(f"{_folder(self.address, self.token)}/end.json", canonical_json(ended))

    def _successor(self) -> AttemptRecord | None:
        later = (_record(self.address, token) for token in reversed(_tokens(self.address)) if token > self.token)
        return next((record for record in later if record is not None), None)


class StalenessObserver:
    """How long each attempt's beat has not changed, by this process's own monotonic clock.

    A fresh observer knows nothing, so it takes a whole time-out before it can call anybody stale.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[str | None, float]] = {}

    def observe(self, record: AttemptRecord, beat: str | None) -> float:
        """Seconds for which `beat` (from `read_beat`; None counts as a value) has been the attempt's newest."""
        now = self._clock()
        known = self._seen.get(record.uid)
        if known is None or known[0] != beat:
            self._seen[record.uid] = (beat, now)
            return 0.0
        return now - known[1]


def _folder(address: str, token: int) -> str:
    return f"{address}/{ATTEMPTS_FOLDER}/{token:06d}"


def _tokens(address: str) -> list[int]:
    return sorted(int(name) for name in list_names(f"{address}/{ATTEMPTS_FOLDER}") if name.isdigit())


def _record(address: str, token: int) -> AttemptRecord | None:
    """None where a claimer died (or met a full disk) between making the folder and its claim: that is no attempt."""
    claimed = read_or_none(f"{_folder(address, token)}/claim.json")
    if claimed is None:
        return None
    ended: dict[str, Any] = json.loads(read_or_none(f"{_folder(address, token)}/end.json") or b"{}")
    return AttemptRecord(**json.loads(claimed), ended=ended.get("reason"), detail=ended.get("detail"))
