import os
from collections.abc import Callable

import pytest

from infra.supervise import rank_log
from infra.supervise.rank_log import MAX_LINE_BYTES, RankLogs


@pytest.fixture
def copied(capfd: pytest.CaptureFixture[str]) -> Callable[[dict[int, list[bytes]]], list[str]]:
    """What lies in the log after the ranks have written these pieces and ended."""

    def copy(pieces: dict[int, list[bytes]]) -> list[str]:
        logs = RankLogs()
        ends = {rank: logs.open(rank) for rank in pieces}
        logs.start()
        for rank, written in pieces.items():
            for piece in written:
                os.write(ends[rank], piece)
            os.close(ends[rank])
        logs.close()
        return capfd.readouterr().err.splitlines()

    return copy


def test_each_line_bears_its_rank_however_it_was_written(copied: Callable[[dict[int, list[bytes]]], list[str]]):
    found = copied({0: [b"one\ntw", b"o\n"], 3: [b"three", b"\nlast without an end"]})
    assert [line for line in found if line.startswith("[0]")] == ["[0] one", "[0] two"]
    assert [line for line in found if line.startswith("[3]")] == ["[3] three", "[3] last without an end"]
    assert len(found) == 4


def test_a_line_that_never_ends_is_heard_in_pieces(copied: Callable[[dict[int, list[bytes]]], list[str]]):
    found = copied({1: [b"x" * 1000] * 200})
    assert sum(line.count("x") for line in found) == 200_000
    assert max(map(len, found)) <= MAX_LINE_BYTES + 65_536 + len("[1] ")


def test_a_process_that_holds_its_pipe_open_for_ever_delays_the_end_and_no_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rank_log, "_CLOSE_WAIT_S", 0.05)
    logs = RankLogs()
    held = logs.open(0)
    logs.start()
    logs.close()
    os.close(held)
