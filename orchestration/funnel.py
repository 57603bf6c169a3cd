"""What the demo shows at its end: the funnel, the loss against its prediction, bits per byte, a sample."""

from typing import Any

from rich.console import Console
from rich.table import Table

from assets.evaluation import bits_per_byte
from assets.factory import Factory
from infra.artifacts.artifact import Artifact
from ops.attrition import Outcome
from ops.cache import read_ledger


def show_funnel(console: Console, factory: Factory) -> None:
    """Documents and tokens in and out per stage, and why documents left."""
    console.print(funnel_table(factory), _reasons_table(factory), sep="\n")


def show_results(console: Console, factory: Factory) -> None:
    """The loss against its prediction, bits per byte beside baselines, a sample - all read from published artifacts."""
    _show_prediction(console, factory)
    for checkpoint in ("hero", "cooldown"):
        console.print(_scores_table(checkpoint, _artifact(factory, "evaluation", checkpoint).read_json("evaluation.json")))
    _show_sample(console, _artifact(factory, "evaluation", "cooldown"))
    console.print(f"\nreleased  {_artifact(factory, 'release').url}", soft_wrap=True)


def funnel_table(factory: Factory) -> Table:
    """Documents and tokens in and out, per stage and source."""
    table = _table("Funnel: documents", "stage", *sources(factory), "total", "tokens")
    ledger = read_ledger(_artifact(factory, "store"))
    for title, counts in _document_counts(factory).items():
        table.add_row(title, *(f"{counts[source]:,}" for source in sources(factory)), f"{sum(counts.values()):,}", "")
    for title, outcome in (("store: read", "read"), ("store: held out", "held_out"), ("store: to train on", "out")):
        by_source = [getattr(ledger.counters[source].documents, outcome) for source in sources(factory)]
        tokens = getattr(ledger.total.tokens, outcome)
        table.add_row(title, *(f"{count:,}" for count in by_source), f"{sum(by_source):,}", f"{tokens:,}")
    return table


def sources(factory: Factory) -> tuple[str, ...]:
    """The profile's sources, in the order of the tables' columns."""
    return tuple(sorted(factory.profile.sources))


def _document_counts(factory: Factory) -> dict[str, dict[str, int]]:
    """Stage title -> source -> documents."""

    def of(asset: str, counter: str) -> dict[str, int]:
        return {source: _artifact(factory, asset, source).stats[counter] for source in sources(factory)}

    return {
        "raw: records": of("raw", "records"),
        "extracted: records in": of("extracted", "records"),
        "extracted: documents": of("extracted", "documents"),
        "normalized: distinct": of("normalized", "documents"),
    }


def _reasons_table(factory: Factory) -> Table:
    """Why documents left at the store; every row adds up to what was read."""
    ledger = read_ledger(_artifact(factory, "store"))
    outcomes = [outcome.name.lower() for outcome in Outcome if outcome is not Outcome.EMPTIED or ledger.total.documents.emptied]
    table = _table("Store: every document has one outcome", "source", "read", *(name.replace("_", " ") for name in outcomes))
    for source in sources(factory):
        documents = ledger.counters[source].documents
        table.add_row(source, f"{documents.read:,}", *(f"{getattr(documents, name):,}" for name in outcomes))
    return table


def _show_prediction(console: Console, factory: Factory) -> None:
    result = _artifact(factory, "evaluation", "hero").read_json("evaluation.json")["prediction"]
    score = result["score"]
    verdict = f"not scored: {result['reason_not_scored']}" if score is None else "within" if score["is_within_tolerance"] else "outside"
    tolerance = f" its tolerance of {score['tolerance']:.3f}" if score else ""
    console.print(
        f"\nhero, {result['metric'].replace('_', ' ')}: predicted {result['predicted']:.3f}, measured {result['measured']:.3f}, "
        f"difference {result['difference']:+.3f}: {verdict}{tolerance}",
        soft_wrap=True,
    )


def _scores_table(checkpoint: str, scored: dict[str, Any]) -> Table:
    table = _table(f"{checkpoint}: bits per byte on held-out text", "slice", "model", "95% interval", *scored["baselines"], "bytes")
    for row in bits_per_byte(scored):
        interval = f"{row['low']:.3f} to {row['high']:.3f}" if row["low"] is not None else "unknown"
        others = (f"{row[name]:.3f}" for name in scored["baselines"])
        table.add_row(row["slice"], f"[bold]{row['model']:.3f}[/bold]", interval, *others, f"{row['bytes']:,}")
    return table


def _show_sample(console: Console, evaluation: Artifact) -> None:
    sample = evaluation.read_json("samples.json")[0]
    console.print("\nsample from the cooldown:")
    console.print(f"{sample['prompt']}{sample['text']}", markup=False, style="dim", soft_wrap=True)


def _artifact(factory: Factory, asset: str, partition: str | None = None) -> Artifact:
    found = factory.resolve(asset, partition).artifact
    assert found is not None, f"{asset} was built before its results are shown"
    return found


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    return table
