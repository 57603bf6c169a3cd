"""What must hold in every world, asked after everything that happens. Each looks at storage and engines themselves.

Nothing here uses the code that it judges: which ending costs what is written down a second time, from the contract.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.artifacts.lease import StalenessObserver
from infra.dispatch.budgets import Budgets
from infra.dispatch.capacity import unfinished, usage
from infra.dispatch.job import Job
from infra.dispatch.outcome import JobFailed, Outcome
from infra.dispatch.reconcile import carry_out, reconcile, survey
from tests.simulation.bucket import Bucket
from tests.simulation.engine import Running, SimulatedEngine
from tests.simulation.history import Violation

APPLICATION = {"unpublished", "application_error", "invalid_config", "storage_refused", "out_of_memory", "timed_out"}
INFRASTRUCTURE = {
    *("storage_away", "stalled", "poisoned_device", "crashed", "supervisor_lost", "preempted", "node_lost"),
    *("peer_lost", "rendezvous_failed"),
}
FINAL = {"cancelled", "invalid_config", "unschedulable"}
EARLY = {*APPLICATION - {"storage_refused"}, "stalled", "poisoned_device", "crashed", "peer_lost", "rendezvous_failed"}
STALE_S = 90.0


@dataclass
class Claim:
    """What became of one attempt number."""

    number: int
    uid: str
    by: str
    ended: str | None = None
    end: dict[str, Any] = field(default_factory=dict)
    last_beat_s: float = 0.0
    longest_silence_s: float = 0.0
    visible_s: float = 0.0


@dataclass(eq=False)
class Facts:
    """What is true of a world, beside what its dispatchers believe."""

    bucket: Bucket
    job: Job
    budgets: Budgets
    engines: list[SimulatedEngine] = field(default_factory=list)
    claims: dict[int, Claim] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    manifest: bytes | None = None
    provenance_s: dict[str, float] = field(default_factory=dict)

    def path(self, name: str) -> str:
        return f"{self.job.address.removeprefix('s3://')}/{name}"

    def stored(self, name: str) -> bytes | None:
        return self.bucket.objects.get(self.path(name))

    def running(self) -> list[tuple[SimulatedEngine, Running]]:
        return [(engine, running) for engine in self.engines for running in engine.jobs.values()]

    def attempt_of(self, uid: str) -> Running | None:
        return next((running for _, running in self.running() if running.attempt.uid == uid), None)


def at_most_one_live_attempt(facts: Facts) -> None:
    """One attempt works on a key. Another may only where the first was silent for so long that nobody can tell it from a dead one."""
    for engine in facts.engines:
        alive = [running.attempt.number for running in engine.jobs.values() if running.works]
        _require(len(alive) <= 1, "at_most_one_live_attempt", f"attempts {alive} work at {engine.identity} at the same time")
    for engine, running in facts.running():
        claim = facts.claims.get(running.attempt.number)
        if running.works and claim is not None and claim.ended is not None:  # so its capacity was given away
            where = f"attempt {claim.number} works at {engine.identity}, and its end ({claim.ended}) is recorded"
            _require(
                claim.ended == "node_lost" and claim.longest_silence_s >= STALE_S,
                "at_most_one_live_attempt",
                f"{where}; it was silent for {claim.longest_silence_s:.0f} s at most",
            )


def published_is_complete(facts: Facts) -> None:
    """What a manifest names lies there, byte for byte, with its provenance, whatever is written or swept afterwards."""
    if facts.manifest is None:
        return
    told = json.loads(facts.manifest)
    for entry in told["files"]:
        stored = facts.stored(f"{told['directory']}/{entry['name']}")
        same = stored is not None and (len(stored), hashlib.sha256(stored).hexdigest()) == (entry["size"], entry["sha256"])
        _require(same, "published_is_complete", f"{entry['name']} of the published artifact is missing or torn")
    _require(facts.stored(f"{told['directory']}/.provenance.json") is not None, "published_is_complete", "published without provenance")


def one_winner(facts: Facts) -> None:
    """A manifest is created once, by an attempt that nobody had fenced when its work was complete."""
    _require(facts.stored(".artifact.json") == facts.manifest, "one_winner", "the manifest was changed after it was published")


def winner_was_not_fenced(facts: Facts, uid: str) -> None:
    """Asked at publication: a successor that was there to be seen before the work was complete must have stopped it."""
    claim = next((claim for claim in facts.claims.values() if claim.uid == uid), None)
    _require(claim is not None, "one_winner", f"attempt {uid} published without a claim")
    assert claim is not None
    successor = facts.claims.get(claim.number + 1)
    complete_s = facts.provenance_s.get(uid, 0.0)
    _require(
        successor is None or successor.visible_s >= complete_s,
        "one_winner",
        f"attempt {claim.number} published, though attempt {claim.number + 1} had fenced it before its files were complete",
    )


def winner_knows_it(facts: Facts, who: str, outcome: Outcome) -> None:
    """Asked at an answer: the artifact is there, and `built` is said by whoever claimed the attempt, and by nobody else."""
    told = json.loads(facts.manifest or b"{}")
    _require(outcome.artifact.digest == told.get("digest"), "one_winner", "an artifact was reported that is not the published one")
    claim = next((claim for claim in facts.claims.values() if told["directory"] == f"attempt-{claim.uid}"), None)
    is_mine = claim is not None and claim.by == who
    _require(
        (outcome.how == "built") == is_mine,
        "one_winner",
        f"{who} was told {outcome.how!r}, but the winner was claimed by {claim and claim.by}",
    )


def every_budget_is_charged_once(facts: Facts, ends: Sequence[dict[str, Any]], *, gave_up: bool) -> None:
    """A dispatcher gives up exactly where the ends of this run, each counted once, use a budget up."""
    should = (
        any(_is_used_up(ends[: count + 1], facts.budgets) for count in range(len(ends))) if gave_up else _is_used_up(ends, facts.budgets)
    )
    told = ", ".join(str(end["ending"]) for end in ends)
    if gave_up:
        _require(should, "every_budget_is_charged_once", f"given up after {told}, which no budget forbids")
    else:
        _require(not should, "every_budget_is_charged_once", f"tried again after {told}, which used a budget up")


def what_ran_is_charged(facts: Facts, claim: Claim) -> None:
    """Losing what never started is free: so nothing may count as such of which the engine knows how it ended."""
    running = facts.attempt_of(claim.uid)
    word = running.word if running is not None else None
    is_free = claim.ended == "never_started" and word is not None and word.ending.value != "never_started"
    _require(
        not is_free, "every_budget_is_charged_once", f"attempt {claim.number} counts as never started; the engine knows better: {word}"
    )


def an_end_is_its_own(facts: Facts, claim: Claim) -> None:
    """The recorded end is that attempt's and no other's: its text names the attempt that its supervisor saw."""
    others = [other.uid for other in facts.claims.values() if other.uid != claim.uid and other.uid in str(claim.end.get("what"))]
    _require(not others, "no_mixed_generations", f"attempt {claim.number} ({claim.uid}) was given the end of {others}")


def preemption_alone_never_fails(facts: Facts, who: str, ends: Sequence[dict[str, Any]], failed: JobFailed) -> None:
    """A failure that somebody is told of has its cause in the program, or in a budget for losses that is truly used up."""
    since = facts.since.get(who, 0)
    if any(running.is_at_fault for _, running in facts.running() if running.attempt.number > since):
        return
    losses = sum(end["ending"] in INFRASTRUCTURE and not end.get("saved") for end in ends)
    is_loop = _early(ends) >= facts.budgets.crashes_before_first_step_in_a_row or failed.ending.value == "never_started"
    _require(
        losses > facts.budgets.infrastructure or is_loop,
        "preemption_alone_never_fails",
        f"the job failed ({failed.ending}) after {losses} losses, and its program did nothing wrong: {failed.what}",
    )


def no_mixed_generations(facts: Facts) -> None:
    """Hosts of one gang only; all that it asked for; and nothing of it is left when it counts as over."""
    for engine in facts.engines:
        alive = {running.attempt.number for running in engine.jobs.values() for host in running.hosts if host.works}
        _require(len(alive) <= 1, "no_mixed_generations", f"hosts of attempts {sorted(alive)} work together at {engine.identity}")
    for _, running in facts.running():
        size = running.job.resources.target.hosts
        _require(len(running.hosts) in (0, size), "no_mixed_generations", f"{len(running.hosts)} of {size} hosts were started")


def nothing_is_left_of_what_is_over(facts: Facts, running: Running) -> None:
    """Asked when an engine says that an attempt has ended: a success is provisional until all its hosts have ended."""
    left = [host.number for host in running.hosts if not host.is_gone]
    _require(not left, "no_mixed_generations", f"attempt {running.attempt.number} counts as over, and hosts {left} go on")


def cancelled_gives_back(facts: Facts) -> None:
    """Asked when a cancel was confirmed: no attempt that was marked holds anything."""
    marked = [claim for claim in facts.claims.values() if facts.stored(f".attempts/{claim.number:06d}/cancel.json") is not None]
    held = [claim.number for claim in marked if claim.ended is None]
    _require(not held, "idle_fleet_uses_nothing", f"a cancel was confirmed, and attempts {held} hold what they asked for")


def idle_fleet_uses_nothing(facts: Facts) -> None:
    """Asked when everybody has gone: after the sweep for orphans, nothing is in use and no process is left."""
    left = [running.attempt.number for _, running in facts.running() if not running.is_over]
    _require(not left, "idle_fleet_uses_nothing", f"processes of attempts {left} are left")
    now_s = 0.0
    observers = [StalenessObserver(lambda: now_s) for _ in facts.engines]
    for now_s in (0.0, STALE_S):  # noqa: B007 - the observers read it
        for engine, observer in zip(facts.engines, observers, strict=True):
            for action in reconcile(list(survey([facts.job.address], engine, observer)), stale_s=STALE_S):
                carry_out(action, engine)
    table = usage(spec.job.resources for spec in unfinished([facts.job.address]))
    _require(not table, "idle_fleet_uses_nothing", f"nothing runs, and {table} is in use")


def _is_used_up(ends: Sequence[dict[str, Any]], budgets: Budgets) -> bool:
    if not ends:
        return False
    endings = [end["ending"] for end in ends]
    losses = sum(end["ending"] in INFRASTRUCTURE and not end.get("saved") for end in ends)
    failures = sum(ending in APPLICATION for ending in endings)
    unstarted = _last_in_a_row(endings, lambda ending: ending == "never_started")
    return (
        endings[-1] in FINAL
        or failures > budgets.application
        or losses > budgets.infrastructure
        or unstarted >= budgets.never_started_in_a_row
        or _early(ends) >= budgets.crashes_before_first_step_in_a_row
    )


def _early(ends: Sequence[dict[str, Any]]) -> int:
    return _last_in_a_row(ends, lambda end: end["ending"] in EARLY and not end.get("steps") and not end.get("saved"))


def _last_in_a_row[T](items: Sequence[T], holds: Callable[[T], bool]) -> int:
    count = 0
    for item in reversed(items):
        if not holds(item):
            break
        count += 1
    return count


def _require(holds: bool, invariant: str, why: str) -> None:
    if not holds:
        raise Violation(invariant, why)


THROUGHOUT: tuple[Callable[[Facts], None], ...] = (at_most_one_live_attempt, published_is_complete, one_winner, no_mixed_generations)
