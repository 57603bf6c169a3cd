"""The bench: what it measures, what it says when a side can't be measured."""

import sys
from pathlib import Path

import pytest

from ops.bench.clock import LEAST_CPU_S, Work, measured
from ops.bench.judging import accuracy, extraction_f1, removal
from ops.bench.ours import STAGES as OURS
from ops.bench.pages import write_warc
from ops.bench.report import as_json, lines_of, ratios
from ops.bench.run import CandidateError, Measurement, measurement_of, run
from ops.bench.stages import STAGES
from ops.extract.records import Record, read_records


def measurement(documents: int, cpu_s: float) -> Measurement:
    return Measurement(
        documents=documents, bytes=documents * 1_000, cpu_s=cpu_s, start_cpu_s=1.0, peak_bytes=10_000_000, quality={"F1": 0.9}
    )


def spin(times: list[int]) -> int:
    times.append(sum(range(200_000)))
    return 7


def test_only_the_run_is_on_the_clock_and_short_work_is_repeated() -> None:
    times: list[int] = []

    def prepare() -> Work:
        sum(range(2_000_000))
        return Work(10, 1_000, lambda: spin(times), lambda found: {"found": found}, repeatable=True)

    found = measured(prepare)
    assert found["quality"] == {"found": 7}
    assert len(times) > 1
    assert 0 < found["cpu_s"] < LEAST_CPU_S
    assert found["start_cpu_s"] > found["cpu_s"]


def test_a_childs_cpu_time_counts() -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    found = measured(lambda: Work(1, 1, lambda: __import__("subprocess").run([sys.executable, "-c", burn], check=True)))
    assert found["cpu_s"] >= 0.2


def test_the_ratio_is_of_documents_a_cpu_second_in_the_same_round() -> None:
    assert ratios([measurement(100, 1.0), measurement(100, 2.0)], [measurement(50, 5.0), measurement(50, 5.0)]) == [10.0, 5.0]


def test_a_side_that_fails_is_named_with_its_reason_and_the_other_is_still_told() -> None:
    stage = STAGES[0]
    found, failed = {(stage.key, "seaway"): [measurement(100, 1.0)]}, {(stage.key, "datatrove"): "exit code 1: ImportError: no spaCy"}
    text = "\n".join(lines_of([stage], found, failed))
    assert "100 docs/s" in text
    assert "not measured: exit code 1: ImportError: no spaCy" in text
    sides = as_json([stage], found, failed)["stages"][0]["sides"]
    assert sides["datatrove"]["failed"].endswith("no spaCy")
    assert sides["seaway"]["documents_per_cpu_s"] == [100.0]


def test_a_candidate_that_crashes_or_prints_something_else_is_an_error() -> None:
    with pytest.raises(CandidateError, match="exit code 3: boom"):
        run([sys.executable, "-c", "import sys; print('boom', file=sys.stderr); sys.exit(3)"])
    with pytest.raises(CandidateError, match="no measurement: hello"):
        measurement_of("hello\n")
    with pytest.raises(CandidateError, match="nothing printed"):
        measurement_of("")


def test_every_stage_has_both_sides() -> None:
    assert [stage.key for stage in STAGES] == list(OURS)


def test_quality_is_judged_alike_for_all() -> None:
    assert extraction_f1(["a b c d e"], ["a b c d e"])["F1"] == 1.0
    assert extraction_f1(["a b c d"], ["a b c d e"]) == {"F1": pytest.approx(2 / 3), "precision": 1.0, "recall": 0.5}
    assert accuracy(["en", "de"], ["en", "fr"]) == {"accuracy": 0.5}
    assert removal({"1"}, {"exact": ["1", "2"], "none": []}) == {"exact": 0.5}


def test_the_archive_names_payload_types_as_common_crawl_does(tmp_path: Path) -> None:
    write_warc(tmp_path / "pages.warc.gz", {"a": b"<p>one</p>", "b": b"<p>two</p>"})
    with (tmp_path / "pages.warc.gz").open("rb") as stream:
        records = [record for record in read_records(stream, 1 << 20) if isinstance(record, Record)]
    assert [record.kind for record in records] == ["request", "response"] * 2
    assert records[1].fields["warc-identified-payload-type"] == "text/html"
    assert records[3].block.endswith(b"<p>two</p>")
