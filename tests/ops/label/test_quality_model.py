"""A learnt quality score: the oracle's budget and book, calibration, the report by kind, one text alone as in a batch."""

import json
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from infra.artifacts.artifact import Artifact
from ops.label.config import GradeConfig, QualityModelConfig, ScoreConfig
from ops.label.quality_grades import GRADED, GRADES_FILE, grade_documents
from ops.label.quality_model import QualityModel, score_by_model, train_quality_model
from ops.label.quality_oracle import ChatOracle, GradeBook, OracleError, RulesOracle, excerpt_of, grade_in
from ops.label.quality_report import calibrated, isotonic, judged
from ops.shards import read_table, shard_names
from tests.builders import artifact_of, run_program
from tests.ops.normalized import id_of, normalized

GOOD, BAD, EITHER = ([f"{name}{n}" for n in range(60)] for name in ("careful", "spam", "word"))


def page(grade: int, seed: int) -> str:
    """Words of which the more are good ones, the better the grade."""
    rng = random.Random(f"{grade} {seed}")
    return " ".join(rng.choice(rng.choice([GOOD] * (grade - 1) + [BAD] * (5 - grade) + [EITHER] * 2)) for _ in range(120))


PAGES = {page(grade, n): grade for grade in range(1, 6) for n in range(60)}


@dataclass
class PlantedOracle:
    """Knows the grades, and counts how often it is asked."""

    name: str = "planted"
    asked: list[str] = field(default_factory=list)

    def grade(self, excerpts: Sequence[str]) -> list[int | None]:
        self.asked += excerpts
        return [PAGES.get(excerpt) for excerpt in excerpts]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    rows = [(id_of(text), "web", "prose" if n % 3 else "code", grade, text) for n, (text, grade) in enumerate(PAGES.items())]
    table = pa.table({name: list(column) for name, column in zip(GRADED.names, zip(*rows, strict=True), strict=True)}, schema=GRADED)
    grades = artifact_of(tmp_path_factory.mktemp("grades"), {GRADES_FILE: table})
    return run_program(train_quality_model, QualityModelConfig(), tmp_path_factory.mktemp("model"), grades=grades)


def test_the_book_asks_once_and_no_more_than_the_budget(tmp_path: Path) -> None:
    texts, oracle = list(PAGES)[:10], PlantedOracle()
    book = GradeBook(oracle, tmp_path / "book.jsonl", budget=4)
    assert [book.grade(text) for text in texts[:3] + texts[:3]] == [PAGES[text] for text in texts[:3]] * 2
    assert oracle.asked == texts[:3]
    later = GradeBook(oracle, tmp_path / "book.jsonl", budget=2)
    assert [later.grade(text) for text in texts[:6]] == [PAGES[text] for text in texts[:5]] + [None]
    assert later.asked == 2
    other = GradeBook(PlantedOracle("another"), tmp_path / "book.jsonl", budget=1)
    assert other.grade(texts[0]) == PAGES[texts[0]]
    assert other.asked == 1  # another oracle's opinion is not this one's


def test_a_line_that_a_killed_process_left_half_written_is_passed_over(tmp_path: Path) -> None:
    text = next(iter(PAGES))
    GradeBook(PlantedOracle(), tmp_path / "book.jsonl", budget=1).grade(text)
    with (tmp_path / "book.jsonl").open("ab") as stream:
        stream.write(b'{"key": "abc", "gra')
    assert GradeBook(PlantedOracle(), tmp_path / "book.jsonl", budget=0).grade(text) == PAGES[text]


def test_an_answer_has_one_grade_or_none() -> None:
    assert grade_in('{"grade": 4}') == grade_in('Sure!\n```json\n{"grade":4}\n```') == 4
    assert [grade_in(answer) for answer in ("", "4", '{"grade": 7}', '{"grade": 1} or {"grade": 2}')] == [None] * 4


class Endpoint(BaseHTTPRequestHandler):
    """Grades by the first word of the document; refuses a model called broken."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["model"] == "broken" or self.path != "/v1/chat/completions":
            self.send_error(500)
            return
        word = body["messages"][1]["content"].split()[1]
        answer = json.dumps({"choices": [{"message": {"content": f'{{"grade": {word}}}'}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_model_behind_an_endpoint_grades(tmp_path: Path, endpoint: str) -> None:
    assert ChatOracle(endpoint, "m").grade(["3 is what I get", "nothing"]) == [3, None]
    source = normalized(tmp_path / "in", [f"{n % 5 + 1} page {n}" for n in range(20)], held_out=["5 held out"])
    config = GradeConfig(oracle="chat", url=endpoint, model="m", documents_per_source=12, budget=10, book=str(tmp_path / "book.jsonl"))
    grades = run_program(grade_documents, config, tmp_path / "grades", normalized={"web": source})
    rows = read_table(grades, GRADES_FILE).to_pylist()
    assert (grades.stats["sampled"], grades.stats["graded"], grades.stats["sources"]) == (12, 10, {"web": 10})
    assert grades.stats["sampled_by_source"] == {"web": 12}
    assert all(row["grade"] == int(row["excerpt"].split()[0]) for row in rows)
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    assert [row["grade"] for row in grades.read_json("samples.json")] == sorted((row["grade"] for row in rows), reverse=True)
    assert "5 held out" not in {row["excerpt"] for row in rows}
    with pytest.raises(OracleError, match=r"500 .*grades so far are kept"):
        ChatOracle(endpoint, "broken").grade(["x"])


def test_an_endpoint_that_is_not_there_is_named() -> None:
    with pytest.raises(OracleError, match=r"http://127.0.0.1:1/v1: .*run again"):
        ChatOracle("http://127.0.0.1:1/v1", "m", timeout_s=2).grade(["x"])


def test_a_chat_oracle_needs_a_place() -> None:
    with pytest.raises(ValidationError, match="needs a url and a model"):
        GradeConfig(oracle="chat")


def test_the_rules_grade_for_free() -> None:
    good = "It was one of the mornings of which the books are full, and the sea lay quiet before them as if it had slept. " * 1
    assert RulesOracle().grade([good * 3, "$$$ ## $$$"])[1] == 1
    assert set(RulesOracle().grade([good * 9])) <= {1, 2, 3, 4, 5}


def test_an_excerpt_shows_beginning_middle_and_end() -> None:
    assert excerpt_of("short", 10) == "short"
    assert excerpt_of("a" * 100 + "b" * 100 + "c" * 100, 4) == "aaaa\nbbbb\ncccc"


def test_the_classifier_ranks_documents_that_it_never_saw(model: Artifact) -> None:
    report = model.stats["report"]
    assert list(report) == ["all", "code", "prose"]
    assert report["all"]["auc"] > 0.95
    assert report["all"]["spearman"] > 0.9
    assert report["all"]["mean_squared_error"] < 0.2 * report["all"]["grade_variance"]
    assert report["all"]["documents"] == report["code"]["documents"] + report["prose"]["documents"] == model.stats["reported"]
    assert report["all"]["calibration_error"] < 0.08  # on documents that the calibration never saw
    assert [one["mean_grade"] for one in report["all"]["bins"]] == pytest.approx(
        [one["mean_score"] for one in report["all"]["bins"]], abs=0.2
    )
    assert sum(one["documents"] for one in report["all"]["bins"]) == report["all"]["documents"]
    fresh = {page(grade, 1_000 + n): grade for grade in range(1, 6) for n in range(20)}
    scores = QualityModel.read(model)(list(fresh))
    means = [scores[[grade == g for grade in fresh.values()]].mean() for g in range(1, 6)]
    assert means == sorted(means)
    assert means == pytest.approx([0, 0.25, 0.5, 0.75, 1], abs=0.15)  # calibrated: a score says which grade


def test_one_text_alone_has_the_score_that_it_has_in_a_batch(tmp_path: Path, model: Artifact) -> None:
    texts = [*list(PAGES)[::30], "", "x", "海は静かです。" * 40, "unknown words only here"]
    read = QualityModel.read(model)
    assert read(texts).tolist() == [float(read([text])[0]) for text in texts]
    source = normalized(tmp_path / "in", texts, shards=2)
    runs = [
        run_program(score_by_model, ScoreConfig(batch_rows=rows), tmp_path / str(rows), normalized=source, quality_model=model)
        for rows in (1, 5, 4096)
    ]
    assert len({run.digest for run in runs}) == 1
    rows = {row["id"]: row for name in shard_names(runs[0]) for row in read_table(runs[0], name).to_pylist()}
    assert [rows[id_of(text)]["score"] for text in texts] == read(texts).tolist()
    for row in rows.values():
        assert row["quality_bucket"] == sum(row["score"] >= np.float32(cut) for cut in ScoreConfig().cuts)


def test_too_few_grades_are_refused(tmp_path: Path) -> None:
    table = pa.table({"id": ["a"], "source": ["s"], "kind": ["prose"], "grade": [3], "excerpt": ["x"]}).cast(GRADED)
    grades = artifact_of(tmp_path / "grades", {GRADES_FILE: table})
    with pytest.raises(ValueError, match="too few or all the same"):
        run_program(train_quality_model, QualityModelConfig(), tmp_path / "out", grades=grades)


def test_the_calibration_is_the_rising_curve_nearest_to_the_points() -> None:
    """By the max-min formula: at each point the largest, over starts before it, of the smallest mean up to an end after it."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        x, y = rng.integers(0, 12, 40) / 12, rng.integers(0, 5, 40) / 4
        at, values = isotonic(x, y)
        assert at.tolist() == sorted(set(x.tolist()))
        for point, value in zip(at, values, strict=True):
            means = [[y[(x >= low) & (x <= high)].mean() for high in at[at >= point]] for low in at[at <= point]]
            assert value == pytest.approx(max(map(min, means)))
    assert calibrated(np.array([-1.0, 0.5, 9.0]), np.array([0.0, 1.0]), np.array([0.2, 0.6])) == pytest.approx([0.2, 0.4, 0.6])


def test_a_report_agrees_with_counting_pairs() -> None:
    rng = np.random.default_rng(1)
    scores, target = rng.integers(0, 6, 60) / 6, rng.integers(0, 5, 60) / 4
    good, bad = scores[target >= 0.5], scores[target < 0.5]
    pairs = [(a > b) + 0.5 * (a == b) for a in good for b in bad]
    found = judged(scores, target)
    assert found.auc == pytest.approx(np.mean(pairs), abs=1e-6)
    assert found.is_informative
    assert not judged(np.full(60, 0.4), target).is_informative


def test_the_calibration_error_is_what_scores_and_grades_differ_by_in_a_bin() -> None:
    target = np.array([0.0, 0.5, 1.0, 1.0])
    assert judged(np.array([0.24, 0.24, 1.0, 1.0]), target).calibration_error == pytest.approx(0.005)  # 0.24 against 0.25, of half of them
    assert judged(np.array([0.75, 0.75, 0.0, 0.0]), target).calibration_error == pytest.approx(0.75)
