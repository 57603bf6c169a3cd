"""The protocol as a whole: hypothesis plays dispatchers, jobs and zombies in any order over one address."""

from dataclasses import dataclass
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from infra.artifacts.artifact import Artifact
from infra.artifacts.lease import Lease, LeaseHeld, LeaseLost, attempts, claim
from infra.artifacts.store import ArtifactStore, DigestMismatch
from infra.artifacts.writer import Writer
from infra.storage.objects import read_or_none, remove_tree
from tests.infra.artifacts.builders import RECIPE, publish


@dataclass(frozen=True)
class Job:
    """An attempt's process: its lease, what it wrote, and the content by which we know it."""

    lease: Lease
    out: Writer
    content: bytes


class Publication(RuleBasedStateMachine):
    """The model: the highest token ever claimed, the ends recorded, and the one artifact once it is published."""

    jobs = Bundle("jobs")

    @initialize()
    def start(self) -> None:
        self.store = ArtifactStore(f"memory://{uuid4().hex}")
        self.address = self.store.address("asset", "partition", RECIPE)
        self.claimed: list[str] = []
        self.ends: dict[int, str] = {}
        self.published: tuple[bytes, Artifact] | None = None
        self.manifest: bytes | None = None

    @rule(target=jobs, content=st.sampled_from([b"right", b"right", b"wrong"]), lag=st.integers(0, 2))
    def claim_and_write(self, content: bytes, lag: int) -> object:
        """A dispatcher that last looked `lag` attempts ago claims; its job writes one file."""
        uid = uuid4().hex[:16]
        after = max(0, len(self.claimed) - lag)
        if after < len(self.claimed):
            with pytest.raises(LeaseHeld, match=self.claimed[after]):
                claim(self.address, uid=uid, after=after)
            return multiple()
        lease = claim(self.address, uid=uid, after=after)
        self.claimed.append(uid)
        out = self.store.writer(self.address, uid)
        with out.open("data") as stream:
            stream.write(content)
        return Job(lease, out, content)

    @rule(job=jobs)
    def try_to_publish(self, job: Job) -> None:
        """Any job, zombie or not, published or not, comes to its end."""
        if self.published is not None and job.content != self.published[0]:
            with pytest.raises(DigestMismatch, match=self.published[1].digest):
                publish(self.store, self.address, job.lease, job.out)
        elif self.published is not None:
            assert publish(self.store, self.address, job.lease, job.out) == self.published[1]
        elif job.lease.token < len(self.claimed):
            with pytest.raises(LeaseLost, match=self.claimed[-1]):
                publish(self.store, self.address, job.lease, job.out)
        else:
            artifact = publish(self.store, self.address, job.lease, job.out)
            assert artifact.manifest.directory == f"attempt-{job.lease.uid}"
            self.published = (job.content, artifact)
            self.manifest = read_or_none(f"{self.address}/.artifact.json")

    @rule(job=jobs)
    def beat(self, job: Job) -> None:
        if job.lease.token == len(self.claimed):
            job.lease.beat()
        else:
            with pytest.raises(LeaseLost):
                job.lease.beat()

    @rule(job=jobs, reason=st.sampled_from(["succeeded", "preempted", "failed"]))
    def end(self, job: Job, reason: str) -> None:
        assert Lease(self.address, job.lease.token, job.lease.uid).end(reason) == (job.lease.token not in self.ends)
        self.ends.setdefault(job.lease.token, reason)

    @rule(job=jobs)
    def reopen(self, job: Job) -> None:
        if job.lease.token == len(self.claimed) and job.lease.token not in self.ends:
            assert Lease.reopen(self.address, job.lease.token, job.lease.uid).uid == job.lease.uid
        else:
            with pytest.raises(LeaseLost):
                Lease.reopen(self.address, job.lease.token, job.lease.uid)

    @rule(job=consumes(jobs))
    def vanish(self, job: Job) -> None:
        """kill -9: nothing more is heard of it, and its files stay."""

    @rule()
    def sweep(self) -> None:
        removed = self.store.sweep(self.address)
        assert not removed or self.published is not None

    @invariant()
    def the_attempts_are_those_that_were_claimed(self) -> None:
        records = attempts(self.address)
        assert [(record.token, record.uid) for record in records] == list(enumerate(self.claimed, start=1))
        assert {record.token: record.ended for record in records if record.ended} == self.ends

    @invariant()
    def a_reader_sees_nothing_or_the_whole_winner(self) -> None:
        found = self.store.find("asset", "partition", RECIPE)
        if self.published is None:
            assert found is None
            return
        content, artifact = self.published
        assert found == artifact
        assert read_or_none(f"{self.address}/.artifact.json") == self.manifest
        self.store.verify(found)
        with found.open("data") as stream:
            assert stream.read() == content

    def teardown(self) -> None:
        remove_tree(self.store.root)


Publication.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,  # the same stories on every machine; a failing one is printed as a program
    suppress_health_check=[HealthCheck.too_slow],
)
TestPublication = Publication.TestCase
