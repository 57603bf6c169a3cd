"""`seaway eval`: tasks on models, from a preflight of everything to one record each."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assets.factory import Factory
from assets.partitions import PROFILE
from infra.dispatch.messages import Message
from ops.evaluation.records import EvaluationRecord
from ops.evaluation.statistics import estimate
from orchestration.errors import CommandError
from orchestration.evaluate_launch import launch, minted_launch
from orchestration.evaluate_plan import Plan, Planned, Request, make_plan, profile_for


class EvaluationFailedError(CommandError):
    """At least one evaluation has a record that is no success."""


def show_evaluation(console: Console, request: Request, *, dry_run: bool) -> None:
    """Plan, run what is missing, and show what every evaluation came to.

    Raises:
        PreflightError: nothing was allocated.
        EvaluationFailedError: some ended otherwise than in a success; all have their record.
    """
    factory = Factory(profile_for(PROFILE, request.backend))
    plan = make_plan(factory, request)
    if dry_run:
        console.print(plan_table(plan, factory.profile.backend.kind))
        todo = sum(planned.record is None for planned in plan.evaluations)
        console.print(f"suite {plan.suite}: {todo} to run, {len(plan.evaluations) - todo} done; nothing was started")
        return
    name = request.launch or minted_launch()
    console.print(f"launch {name} of suite {plan.suite}; if it is interrupted, go on with --launch {name}", soft_wrap=True)
    with console.status("evaluating") as status:

        def hear(planned: Planned, message: Message) -> None:
            if message.progress is not None:
                status.update(escape(f"{planned.title}: {message.text}"))

        settled = list(launch(factory, plan, name, hear))
    console.print(results_table(settled))
    failed = [(planned, record) for planned, record in settled if record.status != "succeeded"]
    for planned, record in failed:
        console.print(escape(f"{planned.title}: {record.reason}"), soft_wrap=True)
    if failed:
        raise EvaluationFailedError(f"{len(failed)} of {len(settled)} evaluations did not succeed; launch them again, what succeeded stays")


def plan_table(plan: Plan, backend: str) -> Table:
    """One row for each evaluation: what would be asked, where, and whether there is anything left to do."""
    table = Table(box=None, pad_edge=False)
    for column in ("model", "evaluation", "engine", "items", "device", "band", "backend", "verdict", "run"):
        table.add_column(column, justify="right" if column == "items" else "left", no_wrap=True)
    for planned in plan.evaluations:
        resources = planned.job.resources
        verdict = "[bold]run[/]" if planned.record is None else "[green]done[/]"
        where = (resources.device, resources.band, backend)
        table.add_row(
            planned.model.name, planned.name, planned.evaluation.engine, f"{planned.items:,}", *where, verdict, planned.job.recipe
        )
    return table


def results_table(settled: list[tuple[Planned, EvaluationRecord]]) -> Table:
    """One row for each record: the rate over all items that were set out for, with its 95% interval."""
    table = Table(box=None, pad_edge=False)
    for column in ("model", "evaluation", "status", "metric", "rate", "95% interval", "graded", "of", "run"):
        right, whole = column in ("rate", "graded", "of"), column != "metric"  # a narrow terminal breaks the metric, never an id
        table.add_column(column, justify="right" if right else "left", no_wrap=whole, overflow="ignore" if whole else "fold")
    for planned, record in settled:
        table.add_row(planned.model.name, planned.name, record.status, *_numbers(record), record.run_id)
    return table


def _numbers(record: EvaluationRecord) -> tuple[str, str, str, str, str]:
    coverage, headline = record.coverage, record.headline
    if coverage is None or headline is None:
        return "", "", "", "", ""
    if not coverage.scored:  # a perplexity task: its number is no rate
        return headline[1], "", "", "0", f"{coverage.attempted:,}"
    found = estimate(coverage.tally)
    metric = headline[1] if headline[0] == "none" else f"{headline[1]} ({headline[0]})"
    rate = f"{found.complete_case:.3f}" if found.complete_case is not None else ""
    return metric, rate, f"{found.low:.3f} to {found.high:.3f}", f"{coverage.scored:,}", f"{coverage.attempted:,}"


def default_models() -> Path:
    """The models of the lineage itself: hero, cooldown and release."""
    return Path(__file__).parent / "suites" / "lineage.yaml"
