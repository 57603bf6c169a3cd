"""`seaway eval`, before anything is allocated: every task, file, model and credential is looked at, and what is left is a plan as data."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from assets.factory import Factory, addresses
from assets.profile import Profile
from assets.stage import program_version
from infra.archive.archive import Archive
from infra.artifacts.artifact import Artifact
from infra.artifacts.recipe import payload_of, recipe_of
from infra.dispatch.engines.choice import EngineConfig, refusal
from infra.dispatch.job import Job, Resources
from ops.evaluation.config import TaskEvaluationConfig
from ops.evaluation.engines import identity_of_task, version_of
from ops.evaluation.models import ModelFileError, require_tokenizer, require_vocabulary
from ops.evaluation.records import EvaluationRecord, archive_of, records_in, valid_record
from ops.evaluation.suites import Evaluation, ModelSource, SuiteError, filled, load_models, load_suite, require_credentials
from ops.evaluation.tasks.items import TaskItems
from ops.evaluation.tasks.task import TaskError, load_task
from ops.tokenizer import END_OF_TEXT_ID, load_tokenizer
from orchestration.errors import CommandError

ASSET = "benchmarks"  # under which the results lie; no node of the lineage, since any model may be asked
PROGRAM = "model.eval.tasks.evaluate_task:evaluate_task"


class PreflightError(CommandError):
    """Nothing was allocated: each line names a file and a field, and says what to do."""


@dataclass(frozen=True)
class Request:
    """What a person asks for; None and empty leave it to the files and the profile."""

    suite: Path
    models: Path
    model: tuple[str, ...] = ()
    task: tuple[str, ...] = ()
    limit: int | None = None
    backend: str | None = None
    device: str | None = None
    band: str | None = None
    launch: str | None = None
    version: str = ""
    description: str = ""


@dataclass(frozen=True)
class LocatedModel:
    """A model that can be evaluated.

    Attributes:
        digest: of the checkpoint's artifact, or the released folder's fingerprint.
        inputs: of the job.
    """

    name: str
    source: ModelSource
    digest: str
    context_tokens: int
    inputs: dict[str, Artifact]
    folder: str | None


@dataclass(frozen=True)
class Planned:
    """One evaluation of one model.

    Attributes:
        record: its success, if it has one; then nothing is left to do.
    """

    name: str
    model: LocatedModel
    evaluation: Evaluation
    task_file: Path
    task: dict[str, Any]
    items: int
    job: Job
    archive: str
    record: EvaluationRecord | None

    @property
    def title(self) -> str:
        return f"{self.model.name}: {self.name}"


@dataclass(frozen=True)
class Plan:
    """A whole launch."""

    suite: str
    request: Request
    evaluations: tuple[Planned, ...]


def profile_for(profile: Profile, backend: str | None) -> Profile:
    """The profile on another backend, with that backend's defaults; as it is for None.

    Raises:
        PreflightError: there is no such backend.
    """
    if backend is None or backend == profile.backend.kind:
        return profile
    try:
        engine: EngineConfig = TypeAdapter[EngineConfig](EngineConfig).validate_python({"kind": backend})
    except ValidationError as error:
        raise PreflightError(f"--backend {backend}: {error.errors()[0]['msg']}; or choose a profile that has it") from None
    return profile.model_copy(update={"backend": engine})


def make_plan(factory: Factory, request: Request) -> Plan:
    """Look at everything and say what would run.

    Raises:
        PreflightError: something is wrong; all that is wrong is told, a line each.
    """
    try:
        suite, models = load_suite(request.suite), load_models(request.models).models
    except SuiteError as error:
        raise PreflightError(str(error)) from None
    chosen = _chosen(tuple(models), request.model, f"{request.models}: models", "--model")
    problems: list[str] = []
    located = _all(problems, [partial(_located, factory, request, name, models[name]) for name in chosen])
    tasks = _all(problems, [partial(_examined, request, one) for one in suite.evaluations])
    names = [name for name, *_ in tasks]
    twice = sorted({name for name in names if names.count(name) > 1})
    problems += [f"{request.suite}: evaluations.name: {name} occurs twice; give one of them another name" for name in twice]
    resources = _tried(lambda: _resources(factory.profile, request), problems)
    if problems or resources is None:
        raise PreflightError("\n".join(problems))
    wanted = _chosen(tuple(names), request.task, f"{request.suite}: evaluations", "--task")
    kept = [task for task in tasks if task[0] in wanted]
    for model in located:
        problems += [why for name, _, items in kept if (why := _too_long(request, model, name, items))]
    if problems:
        raise PreflightError("\n".join(problems))
    planned = [
        _planned(factory, request, suite.batch_tokens, resources, model, name, evaluation, items)
        for model in located
        for name, evaluation, items in kept
    ]
    return Plan(suite.suite, request, tuple(planned))


def _all[Found](problems: list[str], looks: Sequence[Callable[[], Found]]) -> list[Found]:
    """What each look finds; what keeps one from finding anything is added to the problems."""
    return [found for look in looks if (found := _tried(look, problems)) is not None]


def _tried[Found](look: Callable[[], Found], problems: list[str]) -> Found | None:
    try:
        return look()
    except (SuiteError, TaskError, ModelFileError, PreflightError) as error:
        problems.append(str(error))
    return None


def _chosen(known: tuple[str, ...], asked: tuple[str, ...], where: str, option: str) -> tuple[str, ...]:
    for name in asked:
        if name not in known:
            raise PreflightError(f"{where}: there is no {name!r}, and {option} names it; choose among {', '.join(known)}")
    return tuple(name for name in known if name in asked) if asked else known


def _examined(request: Request, evaluation: Evaluation) -> tuple[str, Evaluation, TaskItems]:
    """An evaluation beside its task, of which every item was read and every prompt filled in."""
    path = request.suite.parent / filled(evaluation.task, request.suite, "evaluations.task")
    if not path.is_file():
        raise SuiteError(
            f"{request.suite}: evaluations.task: {path}: can't be read (no such file); correct the path of the task file, "
            "which is relative to the suite"
        )
    if not version_of(evaluation.engine):
        raise SuiteError(f"{request.suite}: evaluations.engine: lm_eval is not installed; pip install 'seaway[eval]', or choose native")
    require_credentials(evaluation.credentials, request.suite, "evaluations.credentials", os.environ)
    task = load_task(path)
    if evaluation.engine == "native" and task.output_type not in ("multiple_choice", "generate_until"):
        raise SuiteError(f"{request.suite}: evaluations.engine: native grades no {task.output_type}, as {path} has it; choose lm_eval")
    items = TaskItems(task, path.parent)
    for _ in items.items(_limit(request, evaluation)):
        pass
    return evaluation.name or task.task, evaluation, items


def _limit(request: Request, evaluation: Evaluation) -> int | None:
    return min((limit for limit in (request.limit, evaluation.limit) if limit is not None), default=None)


def _located(factory: Factory, request: Request, name: str, source: ModelSource) -> LocatedModel:
    field = f"models.{name}"
    require_credentials(source.credentials, request.models, f"{field}.credentials", os.environ)
    if source.folder is not None:
        folder = (request.models.parent / filled(source.folder, request.models, f"{field}.folder")).resolve()
        released = require_tokenizer(folder)
        return LocatedModel(name, source, released.fingerprint, source.context_tokens or released.context_tokens, {}, str(folder))
    assert source.asset is not None
    found = _published(factory, source.asset, request, field)
    if source.asset == "release":
        released = require_tokenizer(found.local_path("config.json").parent)
        return LocatedModel(name, source, found.digest, source.context_tokens or released.context_tokens, {"release": found}, None)
    tokenizer, run = _published(factory, "tokenizer", request, field), found.read_json("config.json")
    _require_same_tokenizer(found, tokenizer, f"{request.models}: {field}.asset")
    require_vocabulary(load_tokenizer(tokenizer), run["model"]["vocab_size"], END_OF_TEXT_ID, tokenizer.url_of("tokenizer.json"))
    length = source.context_tokens or run["loader"]["sequence_tokens"]
    return LocatedModel(name, source, found.digest, length, {"checkpoint": found, "tokenizer": tokenizer}, None)


def _require_same_tokenizer(checkpoint: Artifact, tokenizer: Artifact, where: str) -> None:
    """A checkpoint says which tokenizer its tokens are of; one of another vocabulary gives numbers that mean nothing."""
    trained_on = checkpoint.read_json("checkpoint/state.json").get("tokenizer")
    if trained_on is not None and trained_on != tokenizer.digest:
        raise PreflightError(
            f"{where}: {checkpoint.url} was trained on tokenizer {trained_on[:16]} and this profile's is {tokenizer.digest[:16]}; "
            "train it again, or evaluate it under the profile that made it"
        )


def _published(factory: Factory, asset: str, request: Request, field: str) -> Artifact:
    import orchestration.definitions  # noqa: F401 - the lineage is filled as it loads

    found = factory.resolve(asset, None).artifact
    if found is None:
        raise PreflightError(
            f"{request.models}: {field}.asset: {asset} is not published for profile {factory.profile.name}; "
            f"materialize it first: dg launch --assets {asset}"
        )
    return found


def _too_long(request: Request, model: LocatedModel, name: str, items: TaskItems) -> str | None:
    task = items.task
    if task.output_type == "generate_until" and task.generation.max_gen_toks >= model.context_tokens:
        return (
            f"{request.suite}: evaluations: {name} writes up to generation_kwargs.max_gen_toks = {task.generation.max_gen_toks} tokens and "
            f"{model.name} reads {model.context_tokens}; lower it in the task file"
        )
    return None


def _resources(profile: Profile, request: Request) -> Resources:
    base = profile.resources_of(ASSET, "accelerator")
    asked = {key: value for key, value in (("device", request.device), ("band", request.band)) if value is not None}
    try:
        resources = Resources.model_validate({**base.model_dump(), **asked})
    except ValidationError as error:
        problem = error.errors()[0]
        said = problem["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        raise PreflightError(f"--{problem['loc'][0]}: {said}") from None
    if why := refusal(profile.backend, resources):
        raise PreflightError(f"device {resources.device}: {why}")
    return resources


def _planned(
    factory: Factory,
    request: Request,
    batch_tokens: int,
    resources: Resources,
    model: LocatedModel,
    name: str,
    evaluation: Evaluation,
    items: TaskItems,
) -> Planned:
    limit = _limit(request, evaluation)
    task_file = (request.suite.parent / filled(evaluation.task, request.suite, "evaluations.task")).resolve()
    config = TaskEvaluationConfig(
        task=identity_of_task(items.task),
        data=items.fingerprint,
        model="" if model.folder is None else model.digest,
        engine=evaluation.engine,
        engine_version=version_of(evaluation.engine),
        limit=limit,
        context_tokens=model.source.context_tokens,
        batch_tokens=batch_tokens,
        task_file=str(task_file),
        model_folder=model.folder,
    )
    version = program_version(PROGRAM)
    payload = payload_of(PROGRAM.partition(":")[2], version, config, {"model": {key: one.digest for key, one in model.inputs.items()}})
    recipe = recipe_of(payload)
    job = Job(
        asset=ASSET,
        partition=f"{model.name}-{name}",
        program=PROGRAM,
        version=version,
        config=config.model_dump(mode="json"),
        inputs={"model": addresses(model.inputs)},
        recipe=recipe,
        payload=payload,
        address=factory.store.address(ASSET, f"{model.name}-{name}", recipe),
        resources=resources,
        timeouts=factory.profile.timeouts_of(ASSET),
    )
    archive = archive_of(factory.profile.storage.root, recipe)
    found = valid_record(records_in(Archive(archive)))
    items_count = len(items.documents[:limit])
    done = found if found is not None and found.status == "succeeded" else None
    return Planned(name, model, evaluation, task_file, config.task, items_count, job, archive, done)


def missing(plan: Plan) -> Iterator[Planned]:
    """What has no success yet."""
    return (planned for planned in plan.evaluations if planned.record is None)
