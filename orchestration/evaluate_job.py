"""The same launch as a Dagster job: config instead of options, records as metadata of the run."""

from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from assets.factory import Factory
from assets.report import table
from infra.dispatch.messages import Message
from orchestration.errors import CommandError


class EvaluateConfig(dg.Config):
    """What to evaluate; paths are of the host that runs Dagster."""

    suite: str = Field(description="path of a suite file")
    models: str | None = Field(default=None, description="path of a models file; by default the lineage's own models")
    model: list[str] = Field(default=[], description="only these models")
    task: list[str] = Field(default=[], description="only these evaluations")
    limit: int | None = Field(default=None, description="at most so many items of each")
    backend: str | None = None
    device: str | None = None
    band: str | None = None
    launch: str | None = Field(default=None, description="go on with this launch; by default this run is one")
    version: str = ""
    description: str = ""


@dg.op(description="Preflight, run what is missing, one record for each evaluation. Fails where one is no success, after all have run.")
def evaluate_suite(context: dg.OpExecutionContext, config: EvaluateConfig, factory: dg.ResourceParam[Factory]) -> None:
    from orchestration.evaluate import default_models
    from orchestration.evaluate_launch import launch  # reads samples with pyarrow, which no loading of the lineage should pay
    from orchestration.evaluate_plan import Planned, Request, make_plan, profile_for

    asked: dict[str, Any] = {name: getattr(config, name) for name in ("limit", "backend", "device", "band", "version", "description")}
    models = Path(config.models) if config.models else default_models()
    request = Request(suite=Path(config.suite), models=models, model=tuple(config.model), task=tuple(config.task), **asked)

    def hear(planned: Planned, message: Message) -> None:
        context.log.log(message.level, f"{planned.title}: {message.text}")

    try:
        own = Factory(profile_for(factory.profile, request.backend))
        settled = [record for _, record in launch(own, make_plan(own, request), config.launch or context.run.run_id, hear)]
    except CommandError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    rows = [
        {
            "model": record.model["name"],
            "evaluation": record.name,
            "status": record.status,
            "run_id": record.run_id,
            "archive": record.archive,
        }
        for record in settled
    ]
    context.add_output_metadata({"records": table(rows), "succeeded": sum(record.status == "succeeded" for record in settled)})
    failed = [f"{record.model['name']}: {record.name}: {record.reason}" for record in settled if record.status != "succeeded"]
    if failed:
        raise dg.Failure("; ".join(failed), metadata={"records": table(rows)}, allow_retries=False)


@dg.job(description="A suite of tasks on models of the lineage or released folders; every evaluation ends in one record.")
def benchmarks() -> None:
    evaluate_suite()
