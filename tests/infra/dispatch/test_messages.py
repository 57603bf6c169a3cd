import json
import os
from pathlib import Path
from typing import Any

import dagster_pipes
import pytest

from infra.dispatch import messages
from infra.dispatch.messages import Message, MessageReader, MessageWriter
from infra.dispatch.progress import Reporter
from tests.infra.dispatch.builders import wait_for


def test_messages_arrive_in_order_and_each_once(tmp_path: Path):
    url, reader = str(tmp_path / "messages"), MessageReader(str(tmp_path / "messages"))
    writer = MessageWriter(url, interval_s=0.01)
    heard: list[Message] = []

    def hear() -> int:
        heard.extend(reader.drain())
        return len(heard)

    writer.log("one")
    wait_for(lambda: hear() == 2, "opened and the first line, while the job runs")
    writer.log("two", "WARNING")
    writer.report({"kind": "progress", "done": 1, "total": None, "unit": "documents"})
    writer.close()
    hear()
    assert [message.method for message in heard] == ["opened", "log", "log", "report_custom_message", "closed"]
    assert [(message.level, message.text) for message in heard[1:4]] == [("INFO", "one"), ("WARNING", "two"), ("INFO", "1 documents")]
    assert list(reader.drain()) == []


def test_who_attaches_later_reads_everything(tmp_path: Path):
    writer = MessageWriter(str(tmp_path), interval_s=0.0)
    for number in range(200):
        writer.log(str(number))
    writer.close(ValueError("at last"))
    heard = list(MessageReader(str(tmp_path)).drain())
    assert [message.text for message in heard[1:-1]] == [str(number) for number in range(200)]
    assert heard[-1].text == "at last"


def test_the_format_is_that_of_dagster_pipes(tmp_path: Path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    channel = dagster_pipes.PipesBufferedFilesystemMessageWriterChannel(str(theirs), interval=0)
    with channel.buffered_upload_loop():
        channel.write_message(dagster_pipes._make_message("log", {"message": "hello", "level": "INFO"}))
        channel.write_message(dagster_pipes._make_message("report_custom_message", {"payload": {"a": 1}}))
    writer = MessageWriter(str(tmp_path / "ours"))
    writer.log("hello")
    writer.report({"a": 1})
    writer.close()
    assert messages_in(tmp_path / "ours")[1:3] == messages_in(theirs)
    assert messages.PROTOCOL_VERSION == dagster_pipes.PIPES_PROTOCOL_VERSION


def messages_in(folder: Path) -> list[Any]:
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def test_storage_that_refuses_delays_messages_and_loses_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    blocked = tmp_path / "messages"
    blocked.touch()  # a file where the folder belongs
    writer = MessageWriter(str(blocked), interval_s=0.01)
    writer.log("kept")
    wait_for(lambda: "messages are late" in capsys.readouterr().err, "a first refusal")
    blocked.unlink()
    writer.close()
    assert [message.method for message in MessageReader(str(blocked)).drain()] == ["opened", "log", "closed"]


def test_storage_that_refuses_for_good_does_not_keep_the_job(tmp_path: Path):
    (tmp_path / "messages").touch()
    writer = MessageWriter(str(tmp_path / "messages"), interval_s=0.01)
    writer.close()


def test_progress_reads_like_a_sentence():
    payload = {"kind": "progress", "done": 12_000, "total": 50_000, "unit": "documents", "per_second": 3401.7, "eta_s": 71.2}
    told = Message("report_custom_message", {"payload": {**payload, "measures": {"loss": 2.31456}}})
    assert told.text == "12,000 of 50,000 documents, 3,402 documents/s, 1 min 11 s left, loss 2.315"


class Listener:
    """A reporter with a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.beats = 0
        self.told: list[Any] = []
        self.reporter = Reporter(self._beat, self.told.append, lambda: self.now_s)

    def _beat(self) -> None:
        self.beats += 1

    def progress(self, at_s: float, done: int, total: int | None = None, unit: str = "documents", **measures: float) -> None:
        self.now_s = at_s
        self.reporter(done, total, unit, **measures)


def test_every_report_beats_and_one_a_second_is_told():
    listener = Listener()
    for tenth in range(31):
        listener.progress(tenth / 10, tenth * 100)
    assert listener.beats == 31
    assert [told["done"] for told in listener.told] == [0, 1000, 2000, 3000]
    assert listener.told[-1]["per_second"] == pytest.approx(1000)


def test_the_time_left_follows_from_the_rate():
    listener = Listener()
    listener.progress(0.0, 100, 1100)
    listener.progress(2.0, 300, 1100)
    assert listener.told[-1]["eta_s"] == pytest.approx(8.0)


def test_a_new_unit_is_told_at_once_with_a_rate_of_its_own():
    listener = Listener()
    listener.progress(0.0, 1000, unit="documents")
    listener.progress(0.1, 1, 10, unit="shards")
    assert [(told["unit"], told["per_second"]) for told in listener.told] == [("documents", None), ("shards", None)]


def test_the_last_report_is_told_at_the_end():
    listener = Listener()
    listener.progress(0.0, 1, 2)
    listener.progress(0.1, 2, 2, loss=1.5)
    listener.reporter.finish()
    listener.reporter.finish()
    assert [(told["done"], told["measures"]) for told in listener.told] == [(1, {}), (2, {"loss": 1.5})]


def test_old_work_is_forgotten_by_the_rate():
    listener = Listener()
    listener.progress(0.0, 0)
    listener.progress(600.0, 1)  # compiling
    for second in range(1, 61):
        listener.progress(600.0 + second, 1 + second * 50)
    assert listener.told[-1]["per_second"] == pytest.approx(50)


def test_a_writer_leaves_no_hidden_files(tmp_path: Path):
    writer = MessageWriter(str(tmp_path))
    writer.close()
    assert all(name.endswith(".jsonl") for name in os.listdir(tmp_path))
