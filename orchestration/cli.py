"""`seaway`: what Dagster doesn't do. Materializing, backfilling and launching stay Dagster's own commands."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Seaway: an LLM factory as one Dagster lineage."
)
catalog_app = typer.Typer(no_args_is_help=True, help="The index of artifacts; it can always be rebuilt from storage.")
app.add_typer(catalog_app, name="catalog")
trace_app = typer.Typer(no_args_is_help=True, help="Follow a document: to the bytes it came from, and to the steps that read it.")
app.add_typer(trace_app, name="trace")

console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
ProfileOption = Annotated[
    str | None, typer.Option("--profile", "-p", help="A profile's name or path; default: $SEAWAY_PROFILE, else demo.")
]


class EngineName(StrEnum):
    """Who generates behind `seaway serve`."""

    seaway = "seaway"
    vllm = "vllm"
    sglang = "sglang"


class JobName(StrEnum):
    """The jobs of `orchestration/jobs.py`."""

    data = "data"
    train = "train"
    evaluate = "evaluate"
    everything = "everything"
    deepen = "deepen"


@app.command()
def demo(
    profile: ProfileOption = None,
    job: Annotated[JobName, typer.Option(help="Only the assets of this job.")] = JobName.everything,
) -> None:
    """Run the whole lineage on this machine, from live crawl to released model, and show what came out."""
    with _profile(profile):
        from orchestration.demo import show_demo

        show_demo(console, job.value)


@app.command()
def ui(profile: ProfileOption = None, port: Annotated[int, typer.Option(help="Port on 127.0.0.1.", min=1, max=65535)] = 3000) -> None:
    """Open Dagster's UI, daemon included, on a profile."""
    with _profile(profile):
        from orchestration.ui import serve_ui

        serve_ui(console, port)


@app.command()
def plan(
    profile: ProfileOption = None,
    everything: Annotated[bool, typer.Option("--all", help="List published nodes too, and those built on demand.")] = False,
) -> None:
    """Show what would run, why, and what it costs, before anything runs."""
    with _profile(profile):
        from orchestration.show import show_plan

        show_plan(console, everything)


@app.command()
def replay(
    node: Annotated[str, typer.Argument(help="asset or asset[partition], e.g. 'normalized[stdlib]'")], profile: ProfileOption = None
) -> None:
    """Rebuild one artifact in a scratch root from its published inputs and compare it byte for byte."""
    with _profile(profile):
        from orchestration.replay import replay_node

        replay_node(console, node)


@app.command()
def model(
    preset: Annotated[str, typer.Argument(help="A named model, e.g. demo, d768, snowball-67b.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    sequence_tokens: Annotated[int | None, typer.Option(help="Count FLOPs at this length; default: the preset's.", min=1)] = None,
    step: Annotated[int | None, typer.Option(help="Also where its run stands after so many updates.", min=0)] = None,
    head: Annotated[bool, typer.Option("--head/--no-head", help="Count the output projection.")] = True,
    windows: Annotated[bool, typer.Option("--windows/--no-windows", help="Windowed layers see their window, not the sequence.")] = True,
    triangle: Annotated[bool, typer.Option("--triangle/--rectangle", help="A query costs the keys before it, or its whole range.")] = False,
    gates: Annotated[bool, typer.Option("--gates/--no-gates", help="Count the matmuls of norm and attention gates.")] = False,
    tokens_per_s: Annotated[float | None, typer.Option(help="Also the utilisation at this speed.", min=0)] = None,
    devices: Annotated[int, typer.Option(help="How many devices run at that speed together.", min=1)] = 1,
    peak_flops: Annotated[float, typer.Option(help="FLOP/s of one device; default: an H100's dense bfloat16.", min=1)] = 989e12,
) -> None:
    """Show what a named model weighs and costs: parameters, FLOPs, tokens, rates, each with its convention."""
    with _profile(None):
        from model.flops import FlopConvention
        from orchestration.model_command import show_model

        show_model(
            console,
            preset,
            convention=FlopConvention(head=head, windows=windows, causal="triangle" if triangle else "rectangle", gates=gates),
            sequence_tokens=sequence_tokens,
            step=step,
            speed=None if tokens_per_s is None else (tokens_per_s, devices, peak_flops),
            as_json=as_json,
        )


@app.command()
def serve(
    model: Annotated[str, typer.Argument(help="A released folder, an artifact's URL, or a node: release, hero, cooldown.")] = "release",
    profile: ProfileOption = None,
    name: Annotated[str | None, typer.Option(help="What clients call the model; default: what it is.")] = None,
    engine: Annotated[EngineName, typer.Option(help="Ours, or somebody else's on a model that it knows.")] = EngineName.seaway,
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = 8000,
    host: Annotated[str, typer.Option(help="There is no authentication: beyond this machine put something in front.")] = "127.0.0.1",
    workers: Annotated[int, typer.Option(help="Worker processes.", min=1)] = 1,
    slots: Annotated[int, typer.Option(help="Requests that a worker answers side by side.", min=1)] = 8,
    request_s: Annotated[float, typer.Option(help="Patience with one request, all attempts together; inner clocks follow.", min=1)] = 7500,
) -> None:
    """Serve a model behind an OpenAI-compatible API (docs/serving.md)."""
    with _profile(profile):
        from orchestration.serve import limits_for, serve_model

        serve_model(
            console,
            model,
            engine=engine.value,
            name=name,
            host=host,
            port=port,
            workers=workers,
            slots=slots,
            limits=limits_for(request_s),
        )


@app.command()
def dash(
    profile: ProfileOption = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.", min=0, max=65535)] = 8400,
) -> None:
    """Show evaluations in a browser: models beside benchmarks, every sample, predictions beside results (docs/dash.md)."""
    with _profile(profile):
        from orchestration.dash import serve_dash

        serve_dash(console, port)


@app.command()
def artifacts(asset: Annotated[str | None, typer.Argument(help="Only this asset.")] = None, profile: ProfileOption = None) -> None:
    """List what is published: recipe, digest, files, bytes."""
    with _profile(profile):
        from orchestration.show import show_artifacts

        show_artifacts(console, asset)


@catalog_app.command("rebuild")
def catalog_rebuild(profile: ProfileOption = None) -> None:
    """Recreate the catalog from storage, which is the truth."""
    with _profile(profile):
        from orchestration.show import rebuild_catalog

        rebuild_catalog(console)


SaveOption = Annotated[Path | None, typer.Option(help="Write the stored bytes of its record there.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout, with every reading.")]


@trace_app.command("document")
def trace_document(
    id: Annotated[str, typer.Argument(help="32 hex digits, as in `normalized`.")],
    save: SaveOption = None,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Show where a document came from, to the byte; what became of it; and every step of every run that read it."""
    with _profile(profile):
        from orchestration.definitions import FACTORY
        from orchestration.trace_show import show_document

        show_document(console, FACTORY, id, save=save, in_json=as_json)


@trace_app.command("url")
def trace_url(
    url: Annotated[str, typer.Argument(help="As the source has it; of a file, `label:path`.")],
    save: SaveOption = None,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Show everything that came from a URL, and every step of every run that read it."""
    with _profile(profile):
        from orchestration.definitions import FACTORY
        from orchestration.trace_show import show_url

        show_url(console, FACTORY, url, save=save, in_json=as_json)


@trace_app.command("step")
def trace_step(
    step: Annotated[int, typer.Argument(help="In the run's own count; a branch goes on from its parent's.", min=0)],
    run: Annotated[str, typer.Option(help="hero, cooldown, or ladder[CELL].")] = "hero",
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Show the documents in a training step's batch, and which of their tokens it read."""
    with _profile(profile):
        from orchestration.definitions import FACTORY
        from orchestration.trace_show import show_step

        show_step(console, FACTORY, run, step, in_json=as_json)


@app.command()
def doctor(
    profile: ProfileOption = None,
    wait_s: Annotated[float, typer.Option(min=1, help="Seconds that the hello jobs may take, queues included.")] = 300,
) -> None:
    """Check a profile end to end: storage, databases, engine, and a hello job on every device; say what to fix."""
    with _profile(profile):
        from orchestration.doctor import examine

        examine(console, wait_s)


@app.command("eval")
def evaluate(
    suite: Annotated[Path, typer.Argument(help="A suite of tasks, as YAML.")],
    profile: ProfileOption = None,
    models: Annotated[Path | None, typer.Option(help="Models, as YAML; default: the lineage's own.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only this model; may be repeated.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only this evaluation of the suite; may be repeated.")] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many items of each.", min=1)] = None,
    backend: Annotated[str | None, typer.Option(help="Another engine than the profile's, with its defaults.")] = None,
    device: Annotated[str | None, typer.Option(help="A name of the device catalogue.")] = None,
    band: Annotated[str | None, typer.Option(help="Priority: production, interactive or batch.")] = None,
    launch: Annotated[str | None, typer.Option(help="Go on with this launch.")] = None,
    version: Annotated[str, typer.Option(help="A label for the records.")] = "",
    description: Annotated[str, typer.Option(help="Why; kept in the records.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, show the plan, and start nothing.")] = False,
) -> None:
    """Run a suite of tasks on models: everything is checked first, only what is missing runs, each ends in one record."""
    with _profile(profile):
        from orchestration.evaluate import default_models, show_evaluation
        from orchestration.evaluate_plan import Request

        request = Request(
            suite=suite,
            models=models or default_models(),
            model=tuple(model or ()),
            task=tuple(task or ()),
            limit=limit,
            backend=backend,
            device=device,
            band=band,
            launch=launch,
            version=version,
            description=description,
        )
        show_evaluation(console, request, dry_run=dry_run)


@contextmanager
def _profile(name: str | None) -> Iterator[None]:
    """Choose the profile for this process, and turn the errors a user can act on into one sentence and exit code 1.

    The lineage reads its profile when it is imported, so every command imports its work inside this block.
    """
    if name:
        os.environ["SEAWAY_PROFILE"] = name
    from assets.profile_file import ProfileError
    from infra.artifacts.store import CorruptArtifactError
    from infra.dispatch.outcome import JobCancelled, JobFailed
    from ops.crawl.listing import SourceError
    from ops.decontaminate.evaluations import EvaluationError
    from orchestration.errors import CommandError

    try:
        yield
    except (ProfileError, SourceError, EvaluationError, CommandError, CorruptArtifactError, JobFailed, JobCancelled, OSError) as error:
        console.print(f"[red]seaway:[/red] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(1) from None


def main() -> None:
    app()
