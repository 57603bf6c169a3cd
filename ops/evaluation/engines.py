"""The two engines that grade a task: which version of each is here, and what of a task decides its numbers."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ops.evaluation.suites import Engine
from ops.evaluation.tasks.task import Task

NATIVE_VERSION = "1"  # raised when the native scorer may give other numbers


def version_of(engine: Engine) -> str:
    """The version of an engine in this environment; empty if it isn't installed."""
    if engine == "native":
        return NATIVE_VERSION
    try:
        return version("lm-eval")
    except PackageNotFoundError:
        return ""


def identity_of_task(task: Task) -> dict[str, Any]:
    """What a task asks, as JSON values: everything but where its data lies, which its fingerprint says better."""
    return task.model_dump(mode="json", exclude={"dataset_path", "dataset_kwargs"})
