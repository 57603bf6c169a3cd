"""What a cluster's members take while they are judged, and in what order they come."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from infra.artifacts.writer import Writer
from ops.dedup.candidates import propose_links
from ops.dedup.components import Components, components_of
from ops.dedup.config import FuzzyDedupConfig
from ops.dedup.entries import EntrySpill
from ops.dedup.fuzzy import decide
from ops.dedup.members import Members, collect_members
from ops.dedup.numbering import Numbering
from ops.units import MiB
from tests.ops.dedup.test_fuzzy import BASE, signatures
from tests.ops.dedup.test_verify import edited
from tests.ops.memory.near import long
from tests.ops.normalized import normalized


def members_of(directory: Path, texts: list[str], batch_bytes: int = MiB, held_out: tuple[str, ...] = ()) -> tuple[Members, Numbering]:
    sources = {"a": normalized(directory / "a", texts, held_out=held_out, shards=2)}
    signed, numbering = signatures(directory, sources), Numbering.of(sources)
    out = Writer(str(directory / "out"), scratch_url=str(directory / "scratch"))
    links = propose_links(signed, numbering, 10_000, out)
    components: Components = components_of(links.left, links.right)
    return collect_members(directory, sources, signed, numbering, components, batch_bytes, 1_000, out), numbering


@pytest.mark.parametrize("batch_bytes", [1, 5_000, MiB])
def test_members_come_cluster_by_cluster_held_out_first_then_longest(tmp_path: Path, batch_bytes: int) -> None:
    pairs = [(text, edited(text, 0.01) + " and more") for text in BASE[:4]]
    members, _ = members_of(tmp_path, [text for pair in pairs for text in pair], batch_bytes, held_out=(pairs[0][0],))
    found: dict[int, list[str]] = {}
    for head, member in members.clusters():
        found.setdefault(head, []).append(member.text.decode())
        assert member.chars == len(member.text.decode())
        assert len(member.buckets) == 26
    assert list(found) == sorted(found)
    expected = [list(pairs[0]), *(sorted(pair, key=len, reverse=True) for pair in pairs[1:])]
    assert sorted(found.values()) == sorted(expected)


def test_a_larger_cluster_of_long_texts_takes_no_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was judged is let go, and of long texts nothing is remembered but the text of neighbours and kept ones."""
    monkeypatch.setattr("ops.dedup.witnesses.WINDOW", 3)
    monkeypatch.setattr("ops.dedup.verify_pair.REMEMBERED_BYTES", 10_000)
    config = FuzzyDedupConfig(samples=0, max_representatives=2)
    peaks: list[int] = []
    for count in (12, 12, 60):  # kernels are compiled in the first
        members, numbering = members_of(tmp_path / f"{len(peaks)}", long(0, count, 0.03))
        out = Writer(str(tmp_path / "judged"), scratch_url=str(tmp_path / "scratch"))
        tracemalloc.start()
        try:
            decided = decide(members, config, numbering, out)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert decided.table.num_rows == count
    assert peaks[2] < peaks[1] + 200_000  # the 48 more have 1.8 MB of text


@pytest.mark.parametrize("parts", [1, 3, 50])
def test_a_bucket_s_documents_stay_together_and_in_order(tmp_path: Path, parts: int) -> None:
    random = np.random.default_rng(parts)
    spill = EntrySpill(tmp_path, parts)
    buckets, numbers = random.integers(0, 40, 300).astype(np.uint64), np.arange(300)
    for start in range(0, 300, 70):
        spill.add(buckets[start : start + 70], numbers[start : start + 70])
    found = [spill.part(part) for part in range(parts)]
    assert sorted(number for _, some in found for number in some.tolist()) == numbers.tolist()
    for bucket in range(40):
        holders = [some[held == bucket].tolist() for held, some in found if (held == bucket).any()]
        assert holders == [numbers[buckets == bucket].tolist()]
