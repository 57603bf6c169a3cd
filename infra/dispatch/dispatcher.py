"""The dispatcher: from a job to its artifact, whoever built it and however often it had to be tried.

The state lies in storage (the manifest, the leases) and at the engine; a dispatcher keeps none, so it may die at any
moment and another may take over. The truth is the manifest: it is asked first, and after every end.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Literal
from uuid import uuid4

from infra.artifacts.artifact import Artifact
from infra.artifacts.lease import AttemptRecord, Lease, LeaseHeld, LeaseLost, StalenessObserver, attempts, claim, newest_attempt, read_beat
from infra.artifacts.store import ATTEMPT_PREFIX, ArtifactStore
from infra.dispatch.backend import Backend, EngineUnavailable, Handle, JobRejected
from infra.dispatch.budgets import Budgets, GiveUp
from infra.dispatch.endings import End, Ending
from infra.dispatch.gang import has_saved
from infra.dispatch.job import Attempt, Job, attempt_directory, is_cancelled, job_id, mark_cancelled
from infra.dispatch.leftovers import remove_leftovers
from infra.dispatch.messages import Message, MessageReader, messages_url
from infra.dispatch.outcome import JobCancelled, JobDetached, JobFailed, Outcome
from infra.dispatch.plan import Attach, Claim, Fence, View, Wait, all_are_over, end_of, last_of_earlier_runs, next_step
from infra.storage.errors import StorageError, TransientStorageError

__all__ = ["Dispatcher", "JobCancelled", "JobDetached", "JobFailed", "Message", "Outcome"]

FIRST_POLL_S = 0.02  # polls slow down from here with the age of the job: a short one isn't kept waiting
VISIBILITY_S = 60.0  # NFS may deny a file that another host just made for as long as it caches a folder (acdirmax)
_UNEXPLAINED = (Ending.SUPERVISOR_LOST, Ending.NEVER_STARTED, Ending.PREEMPTED, Ending.NODE_LOST, Ending.PEER_LOST)

Interruption = Literal["cancel", "detach"] | None


def _ignore(message: Message) -> None:
    return None


def _never() -> Interruption:
    return None


class Dispatcher:
    """Has jobs done by one backend.

    Args:
        stale_s: how long another engine's attempt must be silent before it is taken for dead. Several beats of the lease.
        patience_s: how long storage or engine may stay away before this call gives up (the job itself goes on).
        clock, sleep: monotonic seconds; replaced in simulations.
    """

    def __init__(
        self,
        store: ArtifactStore,
        backend: Backend,
        budgets: Budgets = Budgets(),  # noqa: B008 - frozen
        *,
        poll_interval_s: float = 0.2,
        stale_s: float = 90.0,
        patience_s: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        mint_uid: Callable[[], str] = lambda: uuid4().hex[:16],
    ) -> None:
        self.store = store
        self.backend = backend
        self.budgets = budgets
        self.poll_interval_s = poll_interval_s
        self.stale_s = stale_s
        self.patience_s = patience_s
        self.clock = clock
        self.sleep = sleep
        self.mint_uid = mint_uid

    def run(
        self,
        job: Job,
        *,
        on_message: Callable[[Message], None] = _ignore,
        interruption: Callable[[], Interruption] = _never,
    ) -> Outcome:
        """Find the job's artifact, or have it built.

        Args:
            on_message: gets what the job says, in order; again from its beginning by whoever attaches.
            interruption: asked at every poll. "cancel" ends the job, "detach" lets go of it.

        Raises:
            JobFailed: with the last attempt's end, its log and what to do.
            JobCancelled: by `interruption`, or by somebody else.
            JobDetached: by `interruption`.
        """
        return _Run(self, job, on_message, interruption).to_the_end()

    def cancel(self, job: Job) -> bool:
        """End the attempt of a job that is going on, whoever started it; True once nothing of it runs."""
        last = self.patiently(lambda: newest_attempt(job.address))
        if last is None or last.ended is not None:
            return True
        if last.extra.get("backend") != self.backend.identity:
            self.patiently(lambda: mark_cancelled(job.address, last.token))
            return False
        return self.cancel_attempt(job, Attempt(last.token, last.uid))

    def cancel_attempt(self, job: Job, attempt: Attempt) -> bool:
        """Mark the attempt, end it at the engine, and record that."""
        handle = Handle(job_id(job, attempt.number), attempt)
        self.patiently(lambda: mark_cancelled(job.address, attempt.number))
        confirmed = self.patiently(lambda: self.backend.cancel(handle))
        if confirmed:
            self.record_end(job, attempt, End(ending=Ending.CANCELLED, what="it was cancelled"))
        return confirmed

    def record_end(self, job: Job, attempt: Attempt, end: End) -> None:
        """Write the end beside the lease, unless the supervisor did."""
        lease = Lease(job.address, attempt.number, attempt.uid)
        self.patiently(lambda: lease.end(end.ending.value, end.model_dump(mode="json")))

    def patiently[T](self, operation: Callable[[], T]) -> T:
        """Do it, again while storage or engine stay away. Every operation here may be repeated."""
        deadline = self.clock() + self.patience_s
        while True:
            try:
                return operation()
            except (EngineUnavailable, TransientStorageError):
                if self.clock() >= deadline:
                    raise
                self.sleep(self.poll_interval_s)


class _Run:
    """One call of `Dispatcher.run`: look, decide, act, until there is an artifact or an exception."""

    def __init__(
        self, dispatcher: Dispatcher, job: Job, on_message: Callable[[Message], None], interruption: Callable[[], Interruption]
    ) -> None:
        self._dispatcher = dispatcher
        self._job = job
        self._on_message = on_message
        self._interruption = interruption
        self._observer = StalenessObserver(dispatcher.clock)
        self._over: dict[int, AttemptRecord] = {}
        self._claimed: set[str] = set()
        self._ends: dict[str, End] = {}
        self._paused_after = 0
        self._unseen_since_s: dict[str, float] = {}

    def to_the_end(self) -> Outcome:
        started_s = self._dispatcher.clock()
        since: int | None = None
        artifact = self._published()
        while artifact is None:
            since = last_of_earlier_runs(self._dispatcher.patiently(lambda: newest_attempt(self._job.address))) if since is None else since
            records = self._records(since)
            artifact = self._published()  # after the records: whoever ended as succeeded had published before
            if artifact is None:
                if self._may_become_visible(records, since):
                    self._pause(self._dispatcher.poll_interval_s, None)
                    continue
                self._act(View(records, since, self._silent_s(records)))
        if self._ends:
            with suppress(StorageError):  # it costs space, not the job
                remove_leftovers(self._dispatcher.store, self._job.address)
        return self._outcome(artifact, self._dispatcher.clock() - started_s)

    def _records(self, since: int) -> list[AttemptRecord]:
        """The attempts of this run, and the one before them: a thousand earlier ones cost nothing."""
        look = partial(attempts, self._job.address, after=max(since - 1, 0), known=self._over)
        records = self._dispatcher.patiently(look)
        self._over.update((record.token, record) for record in records if record.ended is not None)
        return records

    def _published(self) -> Artifact | None:
        return self._dispatcher.patiently(lambda: self._dispatcher.store.open_at(self._job.address))

    def _may_become_visible(self, records: list[AttemptRecord], since: int) -> bool:
        """Whether the last attempt of this run says that it published, so recently that storage may not show it yet."""
        if not records or records[-1].token <= since or records[-1].ended != Ending.SUCCEEDED.value:
            return False
        now_s = self._dispatcher.clock()
        return now_s - self._unseen_since_s.setdefault(records[-1].uid, now_s) < VISIBILITY_S

    def _silent_s(self, records: list[AttemptRecord]) -> float:
        if not records or records[-1].ended is not None:
            return 0.0
        beat = self._dispatcher.patiently(lambda: read_beat(self._job.address, records[-1].token))
        return self._observer.observe(records[-1], beat)

    def _act(self, view: View) -> None:
        dispatcher = self._dispatcher
        step = next_step(view, backend=dispatcher.backend.identity, stale_s=dispatcher.stale_s, budgets=dispatcher.budgets)
        match step:
            case Attach(attempt):
                self._follow(attempt)
            case Claim(after, pause_s) if pause_s and self._paused_after != after:
                self._pause(pause_s, None)
                self._paused_after = after
            case Claim(after):
                self._claim(after)
            case Wait():
                self._pause(dispatcher.poll_interval_s, None)
            case Fence(attempt, silent_s):
                what = f"its engine is not this one, and its beat has not changed for {silent_s:.0f} s"
                dispatcher.record_end(self._job, attempt, End(ending=Ending.NODE_LOST, what=what))
            case GiveUp(why=why):
                self._give_up(view.records[-1], why)

    def _claim(self, after: int) -> None:
        """Take the next attempt number; if somebody else was faster, the next look will show it."""
        self._require_nothing_lives(after)
        uid = self._dispatcher.mint_uid()
        extra = {"backend": self._dispatcher.backend.identity, "job_id": job_id(self._job, after + 1)}
        with suppress(LeaseHeld, LeaseLost):
            self._dispatcher.patiently(lambda: claim(self._job.address, uid=uid, after=after, extra=extra))
            self._claimed.add(uid)

    def _require_nothing_lives(self, after: int) -> None:
        """End whatever of this engine was taken for dead from afar, the last and any before it: two must never share an engine."""
        dispatcher = self._dispatcher
        for record in dispatcher.patiently(lambda: attempts(self._job.address, known=self._over)):
            if record.extra.get("backend") == dispatcher.backend.identity and (record.token == after or not all_are_over([record])):
                handle = Handle(job_id(self._job, record.token), Attempt(record.token, record.uid))
                while not dispatcher.patiently(lambda handle=handle: dispatcher.backend.cancel(handle)):  # type: ignore[misc]
                    self._pause(dispatcher.poll_interval_s, None)

    def _follow(self, attempt: Attempt) -> None:
        """Start the attempt or attach to it, and follow it to its end."""
        dispatcher, started_s = self._dispatcher, self._dispatcher.clock()
        reader = MessageReader(messages_url(attempt_directory(self._job.address, attempt.number)))
        try:
            handle = dispatcher.patiently(lambda: dispatcher.backend.submit_or_attach(self._job, attempt))
        except JobRejected as rejected:
            dispatcher.record_end(self._job, attempt, End(ending=Ending.UNSCHEDULABLE, what=str(rejected)))
            return
        while True:
            state = dispatcher.patiently(lambda: dispatcher.backend.poll(handle))
            self._tell(reader)
            if state.end is not None:
                self._conclude(attempt, state.end)
                return
            elapsed_s = dispatcher.clock() - started_s
            self._pause(min(dispatcher.poll_interval_s, max(FIRST_POLL_S, elapsed_s / 10)), attempt)

    def _tell(self, reader: MessageReader) -> None:
        with suppress(StorageError):  # messages inform; what can't be read now is read at the next poll
            for message in reader.drain():
                self._on_message(message)

    def _conclude(self, attempt: Attempt, end: End) -> None:
        """Record the end if the supervisor could not, and that somebody wanted it if somebody did."""
        number, directory = attempt.number, attempt_directory(self._job.address, attempt.number)
        if end.ending in _UNEXPLAINED and self._dispatcher.patiently(lambda: is_cancelled(self._job.address, number)):
            end = end.model_copy(update={"ending": Ending.CANCELLED, "what": "it was cancelled"})
        if end.ending in _UNEXPLAINED and not end.saved and self._dispatcher.patiently(lambda: has_saved(directory)):
            end = end.model_copy(update={"saved": 1})  # whoever could count them is dead
        self._ends[attempt.uid] = end
        self._dispatcher.record_end(self._job, attempt, end)

    def _pause(self, seconds: float, attempt: Attempt | None) -> None:
        """Sleep in short pieces, asking for an interruption before each."""
        dispatcher = self._dispatcher
        until_s = dispatcher.clock() + seconds
        while (left_s := until_s - dispatcher.clock()) > 0:
            self._obey(self._interruption(), attempt)
            dispatcher.sleep(min(left_s, dispatcher.poll_interval_s))

    def _obey(self, interruption: Interruption, attempt: Attempt | None) -> None:
        if interruption == "cancel":
            confirmed = self._dispatcher.cancel_attempt(self._job, attempt) if attempt else self._dispatcher.cancel(self._job)
            raise JobCancelled(self._job, confirmed=confirmed)
        if interruption == "detach":
            raise JobDetached(self._job, job_id(self._job, attempt.number) if attempt else "whatever another dispatcher started")

    def _give_up(self, record: AttemptRecord, why: str) -> None:
        end = end_of(record)
        if end.ending is Ending.CANCELLED:
            raise JobCancelled(self._job)
        handle = Handle(job_id(self._job, record.token), Attempt(record.token, record.uid))
        raise JobFailed(self._job, end, why=why, log=self._dispatcher.backend.log_location(handle))

    def _outcome(self, artifact: Artifact, seconds: float) -> Outcome:
        uid = artifact.manifest.directory.removeprefix(ATTEMPT_PREFIX)
        end = self._ends.get(uid)
        how: Literal["reused", "attached", "built"] = "built" if uid in self._claimed else "attached" if self._ends else "reused"
        return Outcome(artifact, how, len(self._ends), seconds, end.observations if end else {})
