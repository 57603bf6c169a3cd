"""Real processes append at once; one of them is killed in the middle of it."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from infra.archive.archive import Archive
from infra.archive.errors import SnapshotExpiredError
from infra.storage.objects import list_names
from tests.infra.archive.builders import add, docs_in

PROCESSES = 8
COMMITS = 12
ENDLESS = 100_000  # commits of the one that is killed
ENOUGH = 5  # confirmed commits before it is killed


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(str(tmp_path / "archive"))


@pytest.fixture
def writers(archive: Archive) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are ready and wait for a line; the last one never stops by itself."""
    with ExitStack() as ending:
        started = []
        for number in range(PROCESSES):
            commits = COMMITS if number < PROCESSES - 1 else ENDLESS
            command = [
                sys.executable,
                "-P",
                "-m",
                "tests.infra.archive.appender",
                archive.url,
                f"w{number}",
                str(number * ENDLESS),
                str(commits),
            ]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
            ending.enter_context(process)
            ending.callback(process.kill)
            started.append(process)
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield started


def test_every_row_of_eight_processes_is_there_once_though_one_is_killed(archive: Archive, writers: list[subprocess.Popen[str]]) -> None:
    confirmed: list[list[int]] = [[] for _ in writers]
    far_enough = threading.Event()

    def listen(number: int) -> None:
        stream = writers[number].stdout
        assert stream is not None
        for line in stream:
            if line.endswith("\n"):  # a killed process may have written half a line
                confirmed[number].append(int(line))
            if number == PROCESSES - 1 and len(confirmed[number]) >= ENOUGH:
                far_enough.set()

    listeners = [threading.Thread(target=listen, args=(number,)) for number in range(PROCESSES)]
    for listener in listeners:
        listener.start()
    for process in writers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert far_enough.wait(240)
    archive.compact()  # beside the writers' own
    writers[-1].kill()
    assert [process.wait(240) for process in writers] == [0] * (PROCESSES - 1) + [-9]
    for listener in listeners:
        listener.join(60)

    assert len(archive.snapshot().shard_urls("items")) < PROCESSES * COMMITS // 2, "the writers compacted"
    found = docs_in(archive)
    assert len(set(found)) == len(found)
    for number in range(PROCESSES - 1):
        first = number * ENDLESS
        assert confirmed[number] == list(range(first, first + COMMITS))
        assert [doc for doc in found if first <= doc < first + ENDLESS] == confirmed[number], "in the order of its commits"
    killed = [doc for doc in found if doc >= (PROCESSES - 1) * ENDLESS]
    assert killed[: len(confirmed[-1])] == confirmed[-1]
    assert len(killed) <= len(confirmed[-1]) + 1  # committed, and killed before it could say so
    assert archive.snapshot().blobs == {f"{doc}.txt": len(str(doc)) for doc in found}
    archive.snapshot().verify()

    archive.compact()
    archive.collect(timedelta(0))
    assert docs_in(archive) == found
    archive.snapshot().verify()
    assert len(list_names(archive.url)) < 3 * len(found)


def test_a_reader_gets_its_snapshot_whole_while_others_append_and_compact(archive: Archive) -> None:
    add(archive, [0])
    stop = threading.Event()
    wrong: list[str] = []

    def read() -> None:
        reader = Archive(archive.url)
        while not stop.is_set():
            snapshot = reader.snapshot()
            try:
                docs = snapshot.read("items", ["doc"]).column("doc").to_pylist()
            except SnapshotExpiredError as error:
                wrong.append(str(error))
                return
            if docs != list(range(len(docs))) or len(docs) != snapshot.rows("items"):
                wrong.append(f"commit {snapshot.number}: {docs}")

    reading = threading.Thread(target=read)
    reading.start()
    try:
        for doc in range(1, 40):
            add(archive, [doc])
            if doc % 7 == 0:
                archive.compact()
    finally:
        stop.set()
        reading.join(60)
    assert wrong == []
    assert docs_in(archive) == list(range(40))
