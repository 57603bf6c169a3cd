"""The lineage's own task on one of its checkpoints: graded natively, with a tally for each domain and for all."""

from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import program
from infra.artifacts.writer import Writer
from model.eval.tasks import native
from model.eval.tasks.evaluate_task import RESULTS_FILE, SAMPLES_FILE, TaskStats, summarize
from model.eval.tasks.language_model import of_checkpoint
from ops.evaluation.config import TaskScoresConfig
from ops.evaluation.samples import SAMPLES, Sample, samples_batch
from ops.evaluation.tasks.continuations import ITEMS_FILE, TASK_FILE
from ops.evaluation.tasks.items import TaskItems
from ops.evaluation.tasks.task import load_task
from ops.shards import write_table

DOMAIN = "domain"  # column of an item


class TaskScoresStats(TaskStats):
    """By domain, how many items were asked and how many were right; `chance` is what guessing gets."""

    by_domain: dict[str, tuple[int, int]]
    chance: float


@program(version="2")
def score_items(config: TaskScoresConfig, checkpoint: Artifact, tokenizer: Artifact, task_items: Artifact, out: Writer) -> TaskScoresStats:
    """Grade a train or branch artifact on the items that were made of held-out documents.

    Args:
        tokenizer: the checkpoint's.
        task_items: the task file and its items.
        out: gets `samples.parquet`, rows of `ops.evaluation.samples`, and `results.json`.
    """
    with out.scratch_folder() as folder:
        for name in (TASK_FILE, ITEMS_FILE):  # in an object store they have no folder in common
            with task_items.open(name) as stream:
                (folder / name).write_bytes(stream.read())
        items = TaskItems(load_task(folder / TASK_FILE), folder)
    model = of_checkpoint(checkpoint, tokenizer)

    def heard(done: int, total: int) -> None:
        out.progress(done, total, "sequences")

    samples = native.grade(model, items, limit=None, batch_tokens=config.batch_tokens, heard=heard)
    write_table(out, SAMPLES_FILE, pa.Table.from_batches([samples_batch(samples)], SAMPLES.schema))
    stats = TaskScoresStats(
        **summarize(items.task, len(items.documents), samples).model_dump(),
        by_domain=_by_domain(items, samples),
        chance=sum(1 / len(sample.choices or ()) for sample in samples) / len(samples),
    )
    out.write_json(RESULTS_FILE, {"task": items.task.task, "engine": "native", **stats.model_dump(mode="json")})
    return stats


def _by_domain(items: TaskItems, samples: Sequence[Sample]) -> dict[str, tuple[int, int]]:
    domains = {doc_id: str(document[DOMAIN]) for doc_id, document in zip(items.ids, items.documents, strict=True)}
    passed: dict[str, list[bool]] = defaultdict(list)
    for sample in samples:
        assert sample.grading is not None  # a choice is always graded
        passed[domains[sample.doc_id]].append(sample.grading.passed)
    return {domain: (len(found), sum(found)) for domain, found in sorted(passed.items())}
