"""The protocol as a whole: hypothesis plays writers, readers, compactors and collectors in any order over one archive.

Storage loses requests and replies at the commit; a writer may be overtaken at the last moment, sleep, or be killed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from infra.archive import manifest
from infra.archive.archive import Archive
from infra.archive.compaction import Compaction
from infra.archive.errors import (
    ArchiveError,
    DuplicateKeyError,
    FencedError,
    SchemaConflictError,
    SealedError,
    SnapshotExpiredError,
)
from infra.archive.snapshot import Snapshot
from infra.archive.tables import Table
from infra.archive.transaction import Transaction
from infra.storage.errors import TransientStorageError
from infra.storage.objects import remove_tree
from tests.infra.archive.builders import GROWN, ITEMS, SCORED, item, items

WRITERS = 2
some = st.integers(0, 99)  # which of those that there are
a_writer = st.integers(0, WRITERS - 1)
some_docs = st.lists(st.integers(0, 50), min_size=1, max_size=3, unique=True)
a_table = st.sampled_from([ITEMS, ITEMS, GROWN, GROWN, GROWN, SCORED])
a_fault = st.sampled_from([None, None, None, "request", "reply", "reply"])
a_name = st.sampled_from("abcdefgh")
Row = dict[str, Any]


@dataclass
class Work:
    """A transaction, and what we know of it. `landed` is its commit, once it happened: perhaps its writer does not know."""

    transaction: Transaction
    rows: list[Row] = field(default_factory=list)
    blobs: dict[str, int] = field(default_factory=dict)
    score: str | None = None
    fenced: bool = False
    landed: int | None = None


@dataclass
class Reader:
    snapshot: Snapshot
    rows: list[Row]
    collections: int


@dataclass
class Rewrite:
    compaction: Compaction
    changes: int


class Archiving(RuleBasedStateMachine):
    """The model: the rows in order with their commits, the blobs, the type of the column that grows, and whether it is sealed."""

    @initialize()
    def start(self) -> None:
        self.url = f"memory://{uuid4().hex}/archive"
        self.archives = [Archive(self.url, f"writer {number}", compacts=False) for number in range(WRITERS)]
        self.archives[0].transaction()
        self.rows: list[Row] = []
        self.blobs: dict[str, int] = {}
        self.score: str | None = None
        self.sealed = False
        self.changes = self.collections = 0  # compactions and collections that happened; collections
        self.all_works: list[Work] = []  # the killed, too: their streams must not be closed by the garbage collector
        self.works: list[Work] = []
        self.unsettled: list[Work] = []
        self.readers: list[Reader] = []
        self.rewrites: list[Rewrite] = []

    @rule(writer=a_writer, docs=some_docs | st.just([]), table=a_table)
    def begin(self, writer: int, docs: list[int], table: Table) -> None:
        self.works.append(self.begun(writer, docs, table))

    @rule(writer=a_writer, docs=some_docs, table=a_table, fault=a_fault)
    def write(self, writer: int, docs: list[int], table: Table, fault: str | None) -> None:
        """All of a transaction in one step, so that stories get somewhere."""
        self.commit_work(self.begun(writer, docs, table), fault)

    def begun(self, writer: int, docs: list[int], table: Table) -> Work:
        work = Work(self.archives[writer].transaction())
        self.all_works.append(work)
        if docs:
            self.append_to(work, docs, table)
        return work

    @precondition(lambda self: self.works)
    @rule(one=some, docs=some_docs, table=a_table)
    def append(self, one: int, docs: list[int], table: Table) -> None:
        self.append_to(self.works[one % len(self.works)], docs, table)

    def append_to(self, work: Work, docs: list[int], table: Table) -> None:
        score = {"items": None, "double": "double", "string": "string"}[_score_of(table) or "items"]
        batch = items(docs, table=table)
        if score and work.score and score != work.score:
            with pytest.raises(SchemaConflictError, match="score"):
                work.transaction.append(table, batch)
            return
        try:
            work.transaction.append(table, batch)
        except FencedError:
            assert work.fenced
            self.works.remove(work)
            return
        work.score = work.score or score
        work.rows += [{"score": None, **item(doc, table=table)} for doc in docs]

    @precondition(lambda self: self.works)
    @rule(one=some, name=a_name, size=st.integers(0, 3))
    def put_blob(self, one: int, name: str, size: int) -> None:
        work = self.works[one % len(self.works)]
        if name in work.blobs:
            with pytest.raises(ValueError, match="already written"):
                work.transaction.put_blob(name, b"")
            return
        work.transaction.put_blob(name, b"x" * size)
        work.blobs[name] = size

    @precondition(lambda self: self.works)
    @rule(one=some, fault=a_fault)
    def commit(self, one: int, fault: str | None) -> None:
        self.commit_work(self.works.pop(one % len(self.works)), fault)

    def commit_work(self, work: Work, fault: str | None) -> None:
        expected = self.judge(work)
        before = self.number()
        with self.losing(fault):
            if expected:
                self.refuse(work, expected)
            elif not work.rows and not work.blobs:
                assert work.transaction.commit() == before
            elif fault is None:
                self.land(work, work.transaction.commit(), before + 1)
            else:
                with pytest.raises(TransientStorageError):
                    work.transaction.commit()
                if fault == "reply":
                    self.land(work, before + 1, before + 1)
                self.unsettled.append(work)

    @precondition(lambda self: self.unsettled)
    @rule(one=some)
    def commit_again(self, one: int) -> None:
        """A writer that does not know whether it committed asks again, whatever happened meanwhile."""
        work = self.unsettled.pop(one % len(self.unsettled))
        if work.landed is not None:
            work.transaction.discard()
            assert work.transaction.commit() == work.landed
        elif expected := self.judge(work):
            self.refuse(work, expected)
        else:
            before = self.number()
            self.land(work, work.transaction.commit(), before + 1)

    @precondition(lambda self: len(self.works) > 1)
    @rule(one=some, other=some)
    def commit_overtaken(self, one: int, other: int) -> None:
        """Between reading the newest manifest and creating the next one, somebody else commits."""
        work = self.works[one % len(self.works)]
        if not (work.rows or work.blobs) or self.judge(work):
            return
        self.works.remove(work)
        rival = self.works.pop(other % len(self.works))
        create = manifest.create
        before = self.number()

        def overtaken(url: str, proposed: manifest.Manifest) -> bool:
            with mock.patch.object(manifest, "create", create):
                if expected := self.judge(rival):
                    self.refuse(rival, expected)
                elif rival.rows or rival.blobs:
                    self.land(rival, rival.transaction.commit(), before + 1)
            patch.stop()
            return create(url, proposed)

        patch = mock.patch.object(manifest, "create", overtaken)
        patch.start()
        try:
            number = work.transaction.commit()
        except self.judge(work):
            return
        finally:
            mock.patch.stopall()
        assert not self.judge(work)
        self.land(work, number, before + 1 + (rival.landed is not None))

    @precondition(lambda self: self.works)
    @rule(one=some, prepared=st.booleans())
    def kill(self, one: int, prepared: bool) -> None:
        """kill -9, perhaps between the shards and the manifest: nothing more is heard of it, and its files stay."""
        work = self.works.pop(one % len(self.works))
        if prepared and not _repeats(work) and not work.fenced:
            work.transaction.prepare()

    @rule(writer=a_writer)
    def pin(self, writer: int) -> None:
        self.readers.append(Reader(self.archives[writer].snapshot(), list(self.rows), self.collections))

    @precondition(lambda self: self.readers)
    @rule(one=some)
    def read_on(self, one: int) -> None:
        reader = self.readers[one % len(self.readers)]
        try:
            assert _rows(reader.snapshot) == reader.rows
        except SnapshotExpiredError:
            assert reader.collections < self.collections

    @precondition(lambda self: len({row["_commit"] for row in self.rows}) > 1 and len(self.rewrites) < 3)
    @rule(writer=a_writer, target_bytes=st.sampled_from([1 << 20, 8_000]))
    def begin_compaction(self, writer: int, target_bytes: int) -> None:
        self.rewrites += [Rewrite(one.write(), self.changes) for one in self.archives[writer].compactions(target_bytes)]

    @precondition(lambda self: self.rewrites)
    @rule(one=some)
    def commit_compaction(self, one: int) -> None:
        rewrite = self.rewrites.pop(one % len(self.rewrites))
        before = self.number()
        if rewrite.compaction.commit():
            assert self.number() == before + 1
            self.changes += 1
        else:
            assert self.number() == before
            assert rewrite.changes < self.changes, "its inputs were all there"

    @precondition(lambda self: len(self.rows) > 4 * self.collections + 3)  # seldom: each one fences what is under way
    @rule(writer=a_writer)
    def collect(self, writer: int) -> None:
        self.archives[writer].collect(timedelta(0))
        self.collections += 1
        self.changes += 1
        for work in self.all_works:
            work.fenced |= work.landed is None and bool(work.rows or work.blobs)

    @precondition(lambda self: len(self.rows) > 12)  # late: it ends the story of all writers
    @rule(writer=a_writer)
    def seal(self, writer: int) -> None:
        self.archives[writer].seal()
        self.sealed = True

    @invariant()
    def a_new_reader_sees_every_committed_row_once_and_in_order(self) -> None:
        snapshot = Archive(self.url).snapshot()
        assert _rows(snapshot) == self.rows
        assert snapshot.blobs == self.blobs
        assert snapshot.sealed == self.sealed
        keys = [row["doc"] for row in self.rows]
        assert len(set(keys)) == len(keys)
        snapshot.verify()

    def judge(self, work: Work) -> tuple[type[ArchiveError], ...]:
        """What may come of a commit now; empty if it must succeed."""
        if work.fenced:  # it notices at its files or at the manifest, whichever it looks at first
            return (FencedError, *([SealedError] if self.sealed else []), *([DuplicateKeyError] if _repeats(work) else []))
        if _repeats(work):
            return (DuplicateKeyError,)
        if not work.rows and not work.blobs:
            return ()
        if self.sealed:
            return (SealedError,)
        if work.score and self.score and work.score != self.score:
            return (SchemaConflictError,)
        committed = {row["doc"] for row in self.rows}
        if any(row["doc"] in committed for row in work.rows) or work.blobs.keys() & self.blobs.keys():
            return (DuplicateKeyError,)
        return ()

    def refuse(self, work: Work, expected: tuple[type[ArchiveError], ...]) -> None:
        with pytest.raises(expected) as refused:
            work.transaction.commit()
        if isinstance(refused.value, DuplicateKeyError) and refused.value.table == "items":
            assert refused.value.key["doc"] in [row["doc"] for row in work.rows]

    def land(self, work: Work, number: int, expected: int) -> None:
        assert number == expected
        work.landed = number
        self.rows += [{**row, "_commit": number} for row in work.rows]
        self.blobs |= work.blobs
        self.score = self.score or work.score

    def number(self) -> int:
        return Archive(self.url).snapshot().number

    @contextmanager
    def losing(self, fault: str | None) -> Iterator[None]:
        """Storage whose next create of a manifest, all its tries together, loses the request or the reply."""
        pipe_file = MemoryFileSystem.pipe_file

        def faulty(filesystem: MemoryFileSystem, path: str, value: bytes, **options: Any) -> None:
            if "/.manifest-" not in path:
                return pipe_file(filesystem, path, value, **options)
            if fault == "reply":
                pipe_file(filesystem, path, value, **options)
            raise ConnectionResetError("injected")

        if fault is None:
            yield
            return
        with mock.patch.object(MemoryFileSystem, "pipe_file", faulty), mock.patch("infra.storage.errors.ATTEMPTS", 1):
            yield

    def teardown(self) -> None:
        remove_tree(self.url.removesuffix("/archive"))


def _rows(snapshot: Snapshot) -> list[Row]:
    if not snapshot.tables:
        return []
    rows: list[Row] = snapshot.read("items", [*snapshot.schema("items").names, "_commit"]).to_pylist()
    return [{"score": None, **row} for row in rows]


def _repeats(work: Work) -> bool:
    docs = [row["doc"] for row in work.rows]
    return len(set(docs)) < len(docs)


def _score_of(table: Table) -> str | None:
    return str(table.schema.field("score").type) if "score" in table.schema.names else None


Archiving.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,  # the same stories on every machine; a failing one is printed as a program
    suppress_health_check=[HealthCheck.too_slow],
)
TestArchiving = Archiving.TestCase
