"""One task file, two engines: lm-eval's numbers and ours agree to the item."""

import json
from pathlib import Path

import pytest

from infra.archive.archive import Archive
from infra.archive.records import unescape
from model.eval.tasks import harness, native
from model.eval.tasks.language_model import LanguageModel, of_folder
from ops.evaluation.samples import SAMPLES, Sample, samples_batch, samples_of
from ops.evaluation.tasks.items import TaskItems
from ops.evaluation.tasks.task import load_task
from tests.model.eval.tasks.released import BIRDS, EGGS, ODD, answer_task, choice_task, release

EXAMPLES = {"data_files": {"test": "birds.jsonl", "dev": "birds.jsonl"}}
TASKS = {
    "choices": lambda folder: choice_task(folder, BIRDS, metadata={"id_field": "id"}),
    "choices, few-shot": lambda folder: choice_task(
        folder,
        BIRDS,
        dataset_kwargs=EXAMPLES,
        fewshot_split="dev",
        num_fewshot=2,
        description="Birds.",
        fewshot_config={"sampler": "first_n"},
    ),
    "choices, all metrics": lambda folder: choice_task(
        folder,
        BIRDS,
        doc_to_target="{{choices[gold]}}",
        metric_list=[{"metric": name} for name in ("acc", "acc_norm", "acc_bytes", "exact_match")],
    ),
    "letters": lambda folder: choice_task(
        folder, [{"query": one["query"], "gold": one["gold"]} for one in BIRDS], doc_to_choice=["A", "B", "C"]
    ),
    "answers": lambda folder: answer_task(folder, EGGS),
    "answers, few-shot": lambda folder: answer_task(
        folder, EGGS, dataset_kwargs={"data_files": {"test": "eggs.jsonl", "train": "eggs.jsonl"}}, fewshot_split="train", num_fewshot=1
    ),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return of_folder(release(tmp_path_factory.mktemp("release")))


def both(model: LanguageModel, path: Path, limit: int | None = None) -> tuple[list[Sample], list[Sample]]:
    items = TaskItems(load_task(path), path.parent)
    found = [engine.grade(model, items, limit=limit, batch_tokens=512) for engine in (native, harness)]
    first, second = (sorted(samples, key=lambda one: (one.doc_id, one.filter)) for samples in found)
    return first, second


@pytest.mark.parametrize("kind", TASKS)
def test_both_engines_agree_to_the_item(model: LanguageModel, tmp_path: Path, kind: str) -> None:
    ours, theirs = both(model, TASKS[kind](tmp_path))
    assert ours == theirs  # prompts, log-likelihoods to the bit, greedy flags, extracted answers, every metric


def test_a_limit_takes_the_first_items_in_both(model: LanguageModel, tmp_path: Path) -> None:
    ours, theirs = both(model, choice_task(tmp_path, BIRDS), limit=2)
    assert [one.doc_id for one in ours] == [one.doc_id for one in theirs] == ["0", "1"]


def test_odd_text_survives_the_way_from_a_file_through_both_engines_into_an_archive_and_back(model: LanguageModel, tmp_path: Path) -> None:
    ours, theirs = both(model, answer_task(tmp_path, EGGS))
    for name, samples in (("native", ours), ("lm_eval", theirs)):
        archive = Archive(str(tmp_path / name))
        with archive.transaction() as transaction:
            transaction.append(SAMPLES, samples_batch(samples))
        read = [one for batch in archive.snapshot().batches("samples") for one in samples_of(batch)]
        assert read == samples
        odd = next(one for one in read if one.doc_id == "1")
        assert unescape(json.loads(odd.doc)["question"]) == ODD
        assert odd.prompt is not None
        assert unescape(odd.prompt) == f"Question: {ODD}\nAnswer:"


def test_rolling_and_plain_likelihoods_run_in_lm_eval(model: LanguageModel, tmp_path: Path) -> None:
    long = [{"query": "She sells eggs. " * 40, "choices": ["x", "y"], "gold": 0}]
    changed = {"output_type": "loglikelihood_rolling", "doc_to_target": "query", "doc_to_choice": None}
    path = choice_task(tmp_path, long, **changed, metric_list=[{"metric": "bits_per_byte", "aggregation": "bits_per_byte"}])
    items = TaskItems(load_task(path), path.parent)
    found = harness.HarnessModel(model, 512).loglikelihood_rolling([type("Request", (), {"args": (long[0]["query"],)})()])
    whole = native.likelihoods(model, [("", str(long[0]["query"])[:60])], 512)[0]
    assert found[0] < whole.nats < 0
    assert [type(one).__name__ for one in [harness.harness_task(items)]] == ["ConfigurableTask"]
