"""The schedule and the sensor, ticked as the daemon ticks them."""

import json
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from assets.snapshots import latest_snapshot, take_snapshot
from ops.crawl.config import WarcSource
from ops.crawl.listing import SourceError
from orchestration import sensors
from orchestration.definitions import defs
from orchestration.schedules import nightly_refresh
from orchestration.sensors import new_warc_files


def test_the_nightly_schedule_asks_for_a_new_snapshot_of_each_live_source():
    context = dg.build_schedule_context(
        scheduled_execution_time=datetime(2026, 12, 1, 3, tzinfo=UTC), repository_def=defs.get_repository_def()
    )
    (request,) = nightly_refresh.evaluate_tick(context).run_requests or []
    assert request.partition_key == "pydoc"
    assert request.tags["seaway/snapshot"] == "2026-12-01T03:00:00Z"


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A profile whose only source is a folder of WARC files."""
    source = WarcSource(kind="warc", domain="web", licence="none", root=str(tmp_path))
    monkeypatch.setattr(sensors, "PROFILE", sensors.PROFILE.model_copy(update={"sources": {"drop": source}}))
    (tmp_path / "first.warc.gz").write_bytes(b"first")
    return tmp_path


def tick(cursor: str | None) -> dg.SensorResult | dg.SkipReason:
    return new_warc_files(dg.build_sensor_context(cursor=cursor))  # type: ignore[return-value]


def test_the_first_tick_only_remembers(prefix: Path):
    result = tick(None)
    assert isinstance(result, dg.SensorResult)
    assert result.run_requests == []
    assert list(json.loads(result.cursor or "")) == ["drop"]


def test_a_new_file_starts_one_run_of_its_source_and_only_once(prefix: Path):
    remembered = tick(None)
    (prefix / "second.warc.gz").write_bytes(b"second")
    arrived = tick(remembered.cursor)
    assert [request.partition_key for request in arrived.run_requests or []] == ["drop"]
    assert tick(arrived.cursor).run_requests == []


def test_a_file_that_changed_in_place_is_an_arrival(prefix: Path):
    remembered = tick(None)
    (prefix / "first.warc.gz").write_bytes(b"First")
    assert [request.partition_key for request in tick(remembered.cursor).run_requests or []] == ["drop"]


def test_the_first_file_of_an_empty_prefix_is_an_arrival(prefix: Path):
    (prefix / "first.warc.gz").unlink()
    remembered = tick(None)
    assert remembered.run_requests == []
    (prefix / "first.warc.gz").write_bytes(b"first")
    arrived = tick(remembered.cursor)
    assert [request.partition_key for request in arrived.run_requests or []] == ["drop"]
    (prefix / "first.warc.gz").unlink()
    assert tick(arrived.cursor).run_requests == [], "a prefix that is away for a while starts nothing"


def test_hidden_files_and_others_are_no_arrival(prefix: Path):
    remembered = tick(None)
    (prefix / ".partial.warc.gz").write_bytes(b"still copying")
    (prefix / "notes.txt").write_bytes(b"notes")
    assert tick(remembered.cursor).run_requests == []


def test_a_snapshot_at_no_instant_is_refused(tmp_path: Path):
    with pytest.raises(SourceError, match=r"snapshot 'tonight' of source pydoc is no instant in UTC"):
        take_snapshot(str(tmp_path), "pydoc", "tonight")


def test_a_snapshot_is_a_decision_that_stays(tmp_path: Path):
    root = str(tmp_path)
    assert latest_snapshot(root, "pydoc") is None
    take_snapshot(root, "pydoc", "2026-12-01T03:00:00Z")
    take_snapshot(root, "pydoc", "2026-12-01T03:00:00Z")
    take_snapshot(root, "pydoc", "2026-12-02T03:00:00Z")
    assert latest_snapshot(root, "pydoc") == "2026-12-02T03:00:00Z"
    take_snapshot(root, "pydoc", "2026-12-01T03:00:00Z")
    assert latest_snapshot(root, "pydoc") == "2026-12-02T03:00:00Z", "an old run that is executed again takes nothing back"
    assert latest_snapshot(root, "other") is None
    assert len(list((tmp_path / ".snapshots" / "pydoc").iterdir())) == 2
