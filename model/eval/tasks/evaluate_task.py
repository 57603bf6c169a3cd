"""One task on one model: a sample for each item and filter, and what they come to."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from infra.artifacts.artifact import Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from model.eval.tasks import native
from model.eval.tasks.language_model import LanguageModel, open_model
from ops.evaluation.config import TaskEvaluationConfig
from ops.evaluation.engines import identity_of_task, version_of
from ops.evaluation.models import fingerprint_of
from ops.evaluation.samples import SAMPLES, Sample, samples_batch
from ops.evaluation.tasks.items import TaskItems
from ops.evaluation.tasks.task import Task, TaskError, load_task
from ops.shards import write_table

SAMPLES_FILE = "samples.parquet"
RESULTS_FILE = "results.json"


class TaskStats(Stats):
    """What came of the items; `correct` and `filter` are by the task's headline metric and filter."""

    attempted: int
    scored: int
    correct: int
    headline_metric: str
    headline_filter: str
    metrics: dict[str, dict[str, float]]


@program(version="3")
def evaluate_task(config: TaskEvaluationConfig, model: Artifacts, out: Writer) -> TaskStats:
    """Grade a task's items.

    Args:
        model: `release`, or `checkpoint` and `tokenizer`; nothing if the config names a released folder.
        out: gets `samples.parquet`, rows of `ops.evaluation.samples`, and `results.json`.

    Raises:
        TaskError: the task file, its data or the model changed since the job was planned, or an item can't be asked.
    """
    path = Path(config.task_file)
    items = TaskItems(load_task(path), path.parent)
    _require_unchanged(config, items)
    opened = open_model(config.model_folder, model, config.context_tokens)
    samples = grader_of(config)(opened, items, out)
    stats = summarize(items.task, len(items.documents[: config.limit]), samples)
    write_table(out, SAMPLES_FILE, pa.Table.from_batches([samples_batch(samples)], SAMPLES.schema))
    out.write_json(RESULTS_FILE, {"task": items.task.task, "engine": config.engine, **stats.model_dump(mode="json")})
    return stats


def grader_of(config: TaskEvaluationConfig) -> Callable[[LanguageModel, TaskItems, Writer], list[Sample]]:
    """What grades: lm-eval is imported only by who asks for it."""
    if config.engine == "native":
        grade = native.grade
    else:
        from model.eval.tasks import harness

        grade = harness.grade

    def graded(model: LanguageModel, items: TaskItems, out: Writer) -> list[Sample]:
        def heard(done: int, total: int) -> None:
            out.progress(done, total, "sequences")

        return grade(model, items, limit=config.limit, batch_tokens=config.batch_tokens, heard=heard)

    return graded


def summarize(task: Task, attempted: int, samples: Sequence[Sample]) -> TaskStats:
    """Means over the graded samples of each filter, and the headline's tally."""
    sums: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        for name, value in sample.metrics.items():
            sums[sample.filter][name].append(value)
    headline = task.headline_filter
    counted = [sample.grading for sample in samples if sample.filter == headline and sample.grading is not None]
    return TaskStats(
        attempted=attempted,
        scored=len(counted),
        correct=sum(grading.passed for grading in counted),
        headline_metric=task.headline,
        headline_filter=headline,
        metrics={key: {name: sum(found) / len(found) for name, found in sorted(rows.items())} for key, rows in sorted(sums.items())},
    )


def _require_unchanged(config: TaskEvaluationConfig, items: TaskItems) -> None:
    if identity_of_task(items.task) != config.task or items.fingerprint != config.data:
        raise TaskError(f"{config.task_file}: it or its data changed since this job was planned; launch the evaluation again")
    if config.model_folder is not None and fingerprint_of(Path(config.model_folder)) != config.model:
        raise TaskError(f"{config.model_folder}: the model changed since this job was planned; launch the evaluation again")
    if version_of(config.engine) != config.engine_version:
        raise TaskError(
            f"{config.task_file}: planned for {config.engine} {config.engine_version} and here is {version_of(config.engine)}; "
            "install the same on both"
        )
