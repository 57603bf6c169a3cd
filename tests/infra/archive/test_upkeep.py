"""Automatic compaction: few shards, little work, and nothing that a reader could notice."""

import logging
import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.archive.archive import Archive
from infra.archive.compaction import Compaction
from infra.archive.manifest import Shard
from infra.archive.upkeep import EVERY, GROWTH, due
from infra.storage.errors import TransientStorageError
from tests.infra.archive.builders import add, docs_in

MiB = 1024 * 1024
TARGET_BYTES = 16 * MiB


def shard(name: str, size: int) -> Shard:
    return Shard(file=name, size=size, sha256="", rows=1, keys_sha256="", first_commit=1, last_commit=1)


@dataclass
class Kept:
    """A table as its upkeep leaves it: sizes instead of bytes. `rows` are the commits whose rows each shard holds."""

    shards: list[Shard] = field(default_factory=list)
    rows: dict[str, list[int]] = field(default_factory=dict)
    commits: int = 0
    written: int = 0
    most: int = 0

    def commit(self, size: int) -> None:
        self.commits += 1
        self.shards.append(shard(f"{self.commits}", size))
        self.rows[f"{self.commits}"] = [self.commits]
        while self.commits % EVERY == 0 and (inputs := due(self.shards, TARGET_BYTES)):
            start = self.shards.index(inputs[0])
            assert tuple(self.shards[start : start + len(inputs)]) == inputs, "neighbours, in their order"
            name = f"{inputs[0].file} to {inputs[-1].file}"
            self.rows[name] = [row for one in inputs for row in self.rows[one.file]]
            self.shards[start : start + len(inputs)] = [shard(name, sum(one.size for one in inputs))]
            self.written += self.shards[start].size
        self.most = max(self.most, sum(one.size < TARGET_BYTES // 2 for one in self.shards))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    largest=st.sampled_from([3_000, 10_000, 100_000, 3 * MiB]),
)
def test_rows_keep_their_order_small_shards_stay_few_and_nothing_is_written_often(seed: int, largest: int) -> None:
    draw, table = random.Random(seed), Kept()
    sizes = [max(3_000, round(largest ** draw.random())) for _ in range(1_000)]
    for size in sizes:
        table.commit(size)
    assert [row for one in table.shards for row in table.rows[one.file]] == list(range(1, 1_001))
    levels = math.ceil(math.log(TARGET_BYTES / 2 / 3_000, GROWTH))  # from the smallest size to a large one, by doubling
    assert table.most <= EVERY + 4 * levels
    assert table.written <= levels / 2 * sum(sizes)
    assert max(one.size for one in table.shards) <= max(TARGET_BYTES, *sizes)


def test_a_new_shard_is_twice_the_largest_in_it_or_is_not_made() -> None:
    assert due([shard("only", 3_000)]) == ()
    assert due([shard("old", 9_000), shard("new", 3_000)]) == ()
    four = [shard(f"{number}", 3_000) for number in range(4)]
    assert due(four) == tuple(four)
    assert due([shard("old", 50_000), *four]) == tuple(four)
    swallowed = [shard("old", 12_000), *four]
    assert due(swallowed) == tuple(swallowed)


def test_large_shards_are_left_alone_and_divide_what_is_joined() -> None:
    small = [shard(f"{number}", 3_000) for number in range(4)]
    assert due([*small, shard("large", TARGET_BYTES // 2), *small], TARGET_BYTES) == tuple(small)
    assert due([*small, shard("large", TARGET_BYTES // 2)], TARGET_BYTES) == ()


def test_a_hundred_small_commits_leave_few_shards_and_every_row_its_commit(here: Archive) -> None:
    other = Archive(here.url)
    numbers = [add(here if doc % 3 else other, [doc]) for doc in range(100)]
    found = here.snapshot()
    assert len(found.shard_urls("items")) < 2 * EVERY
    assert found.read("items", ["doc", "_commit"]).to_pydict() == {"doc": list(range(100)), "_commit": numbers}
    found.verify()


def test_a_snapshot_from_before_reads_on(here: Archive) -> None:
    for doc in range(EVERY - 1):
        add(here, [doc])
    pinned = here.snapshot()
    add(here, [EVERY - 1])
    assert len(here.snapshot().shard_urls("items")) == 1
    assert pinned.read("items", ["doc"]).column("doc").to_pylist() == list(range(EVERY - 1))


def test_a_compaction_that_fails_does_not_fail_the_commit(
    here: Archive, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Compaction) -> Compaction:
        raise TransientStorageError("storage is away")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(Compaction, "write", fail)
        numbers = [add(here, [doc]) for doc in range(EVERY)]
    assert numbers == list(range(1, EVERY + 1))
    assert f"not compacted after commit {EVERY}: storage is away; a later commit tries again" in caplog.text
    for doc in range(EVERY, 2 * EVERY):
        add(here, [doc])
    assert len(here.snapshot().shard_urls("items")) == 1
    assert docs_in(here) == list(range(2 * EVERY))


def test_it_can_be_left_to_a_person(here: Archive) -> None:
    quiet = Archive(here.url, compacts=False)
    for doc in range(EVERY):
        add(quiet, [doc])
    assert len(quiet.snapshot().shard_urls("items")) == EVERY
