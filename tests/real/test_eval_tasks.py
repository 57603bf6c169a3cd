"""Real benchmark files, end to end on a tiny model: both engines agree to the item, and every sample says why."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from infra.archive.records import unescape
from model.eval.tasks import harness, native
from model.eval.tasks.evaluate_task import summarize
from model.eval.tasks.language_model import LanguageModel, of_folder
from ops.evaluation.statistics import Tally, estimate
from ops.evaluation.tasks.items import TaskItems
from ops.evaluation.tasks.task import TaskError, load_task
from tests.model.eval.tasks.released import release
from tests.real.real_data import REAL_DATA, needs_real_data

TASKS = Path(__file__).parent / "tasks"
pytestmark = needs_real_data


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return of_folder(release(tmp_path_factory.mktemp("release")))


def items_of(name: str, folder: Path) -> TaskItems:
    """The items of a task; HellaSwag's from its request records, an item once."""
    path = TASKS / f"{name}.yaml"
    if name == "hellaswag":
        records = gzip.decompress((REAL_DATA / "evals/hellaswag/mc_5shot.requests.jsonl.gz").read_bytes()).split(b"\n")
        once = [line for line in records if line and json.loads(line)["idx"] == 0]
        (folder / "hellaswag.jsonl").write_bytes(b"\n".join(once) + b"\n")
        path = Path(shutil.copy(path, folder))
    return TaskItems(load_task(path), path.parent)


@pytest.mark.parametrize(("name", "count", "limit"), [("gsm8k", 1319, 3), ("arc_easy", 2376, 8), ("hellaswag", 1000, 8)])
def test_real_benchmarks_run_end_to_end_and_both_engines_agree_to_the_item(
    model: LanguageModel, tmp_path: Path, name: str, count: int, limit: int
) -> None:
    items = items_of(name, tmp_path)
    assert len(items.documents) == count
    ours, theirs = (engine.grade(model, items, limit=limit, batch_tokens=512) for engine in (native, harness))
    key = lambda one: (int(one.doc_id), one.filter)  # noqa: E731 - a sort key
    assert sorted(ours, key=key) == sorted(theirs, key=key)
    stats = summarize(items.task, limit, ours)
    assert (stats.attempted, stats.scored) == (limit, limit)
    assert stats == summarize(items.task, limit, theirs)
    assert estimate(Tally(stats.attempted, stats.scored, stats.correct)).kind == "complete"


def test_every_prompt_of_every_item_can_be_made(tmp_path: Path) -> None:
    for name in ("gsm8k", "arc_easy", "hellaswag"):
        items = items_of(name, tmp_path)
        assert sum(bool(item.context) for item in items.items()) == len(items.documents)


def test_a_prompt_is_what_the_published_requests_say(tmp_path: Path) -> None:
    """OLMo's records hold the prompt beside the item; without its five examples it is ours."""
    items = items_of("hellaswag", tmp_path)
    lines = (tmp_path / "hellaswag.jsonl").read_bytes().split(b"\n")
    for item, line in zip(items.items(100), lines, strict=False):
        assert json.loads(line)["request"]["context"].endswith(unescape(item.context))


def test_records_that_repeat_an_item_are_refused(tmp_path: Path) -> None:
    packed = REAL_DATA / "evals/hellaswag/mc_5shot.requests.jsonl.gz"
    (tmp_path / "hellaswag.jsonl").write_bytes(gzip.decompress(packed.read_bytes()))
    path = Path(shutil.copy(TASKS / "hellaswag.yaml", tmp_path))
    with pytest.raises(TaskError, match=r"hellaswag.jsonl: doc_id = '0' occurs twice"):
        TaskItems(load_task(path), path.parent)
