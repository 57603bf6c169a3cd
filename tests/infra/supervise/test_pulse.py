import os
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from infra.supervise.pulse import BEAT_INTERVAL_S, MAX_CHARS, Failure, Pulse, PulseReader
from tests.infra.dispatch.builders import wait_for

Ends = tuple[Pulse, PulseReader]


@pytest.fixture
def ends() -> Iterator[Ends]:
    read, write = os.pipe()
    yield Pulse(write), PulseReader(read)
    for descriptor in (read, write):
        os.close(descriptor)


def test_beats_are_counted_but_not_more_than_a_supervisor_needs(ends: Ends, monkeypatch: pytest.MonkeyPatch):
    pulse, reader = ends
    times = iter([0.0, BEAT_INTERVAL_S / 2, BEAT_INTERVAL_S, 1.0])
    monkeypatch.setattr("infra.supervise.pulse.time.monotonic", lambda: next(times))
    for _ in range(4):
        pulse.beat()
    assert reader.drain() == 3
    assert reader.drain() == 0


def test_committed_checkpoints_are_counted_beside_the_beats(ends: Ends):
    pulse, reader = ends
    pulse.beat()
    pulse.saved()
    pulse.saved()
    pulse.fail(Failure("crashed", "what? that!", ()))
    assert reader.drain() == 1
    assert reader.saved == 2
    assert reader.failure == Failure("crashed", "what? that!", ())


def test_a_failure_arrives_whole_however_large(ends: Ends):
    pulse, reader = ends
    failure = Failure("application_error", "\u2028" * 2 * MAX_CHARS, tuple("\x00" * 500 for _ in range(100)))
    pulse.beat()
    sender = threading.Thread(target=pulse.fail, args=(failure,))
    sender.start()
    beats = 0

    def heard() -> Failure | None:
        nonlocal beats
        beats += reader.drain()
        return reader.failure

    told = wait_for(heard, "the failure")
    sender.join()
    assert beats == 1
    assert (told.ending, told.what) == ("application_error", "\u2028" * MAX_CHARS)
    assert told.tail == tuple("\x00" * 500 for _ in range(MAX_CHARS // 500))


def test_a_pipe_that_nobody_reads_does_not_stop_the_work():
    read, write = os.pipe()
    os.set_blocking(write, False)
    with suppress(BlockingIOError):
        while os.write(write, b"." * 4096):
            pass
    Pulse(write).beat()
    os.close(read)
    pulse = Pulse(write)
    pulse.beat()
    pulse.fail(Failure("application_error", "nobody hears this", ()))
    os.close(write)


def test_a_closed_pipe_is_known_as_such_so_that_nobody_waits_for_it_busily():
    read, write = os.pipe()
    reader = PulseReader(read)
    assert reader.drain() == 0
    assert reader.is_open
    os.write(write, b"..")
    os.close(write)
    assert reader.drain() == 2
    assert not reader.is_open
    os.close(read)


def test_without_a_supervisor_a_worker_is_silent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SEAWAY_PULSE_FD", raising=False)
    pulse = Pulse.of_environment()
    pulse.beat()
    pulse.fail(Failure("application_error", "nobody hears this", ()))
