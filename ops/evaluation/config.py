"""What evaluation jobs are told. Imports nothing heavy: jobs are planned without an accelerator library."""

from typing import Any

from pydantic import Field

from infra.artifacts.config import ProgramConfig, execution_only
from ops.evaluation.suites import Engine


class TaskEvaluationConfig(ProgramConfig):
    """One task on one model.

    Attributes:
        task: the task's fields, paths apart: what is asked.
        data: fingerprint of the task's files: what is asked about.
        model: fingerprint of a released folder; empty where the model is an input of the job.
        engine_version: of the harness that grades.
        task_file, model_folder: where they lie; the job refuses them if they changed since it was planned.
    """

    task: dict[str, Any]
    data: str
    model: str = ""
    engine: Engine
    engine_version: str
    limit: int | None = None
    context_tokens: int | None = None
    batch_tokens: int = 8192  # bears identity: sums in another order differ in their last bits
    task_file: str = execution_only()
    model_folder: str | None = execution_only(None)


class TaskItemsConfig(ProgramConfig):
    """The task that is made of held-out documents (`ops.evaluation.tasks.continuations`)."""

    items_per_domain: int = Field(default=64, ge=1)
    choices: int = Field(default=4, ge=2)  # to an item, the right one included
    context_characters: int = Field(default=192, ge=1)  # at least, up to the next space
    choice_characters: int = Field(default=48, ge=2)  # at most; whole words, and no less than half of it
    seed: int = 0


class TaskScoresConfig(ProgramConfig):
    """How a checkpoint of the lineage is asked its task."""

    batch_tokens: int = Field(default=8192, ge=1)  # bears identity: sums in another order differ in their last bits
