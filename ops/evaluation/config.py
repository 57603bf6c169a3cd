"""What an evaluation job is told. Imports nothing heavy: jobs are planned without an accelerator library."""

from typing import Any

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
