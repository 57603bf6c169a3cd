"""What Dagster shows beside an artifact: counters, tables, samples, and plots as images inside Markdown."""

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import dagster as dg

from infra.artifacts.artifact import Artifact

PLOT_BYTES = 100_000  # an event is one database row; a larger picture slows every page that lists it
SAMPLE_CHARACTERS = 240


def numbers(stats: Mapping[str, Any]) -> dict[str, int | float]:
    """The plain counters among stats: Dagster plots these over partitions and time."""
    return {name: value for name, value in stats.items() if isinstance(value, int | float) and not isinstance(value, bool)}


def table(rows: Iterable[Mapping[str, Any]]) -> dg.TableMetadataValue | str:
    """Rows as a table in the UI; the columns are those of the first row."""
    records = [dg.TableRecord({key: _cell(value) for key, value in row.items()}) for row in rows]
    return dg.MetadataValue.table(records) if records else "none"


def counts(mapping: Mapping[str, Any], what: str, how_many: str = "count") -> dg.TableMetadataValue | str:
    """A mapping of names to numbers as a table, largest first."""
    return table({what: key, how_many: value} for key, value in sorted(mapping.items(), key=lambda item: (-item[1], item[0])))


def samples(artifact: Artifact, name: str, columns: Sequence[str], rows: int = 10) -> dg.TableMetadataValue | str:
    """The first rows of a shard, texts shortened. Shards are sorted by a hash, so the first rows are a fair sample."""
    import pyarrow.parquet as pq  # the lineage loads without pyarrow

    if name not in artifact.names:
        return "none"
    with artifact.open(name) as stream, pq.ParquetFile(stream) as shard:
        present = [column for column in columns if column in shard.schema_arrow.names]
        batches = shard.iter_batches(batch_size=rows, columns=present)
        return table(row for batch in islice(batches, 1) for row in batch.to_pylist())


def first_shard(artifact: Artifact) -> str:
    """The name of the first shard; empty if there is none."""
    return next((name for name in artifact.names if name.startswith("part-")), "")


def bars(
    values: Mapping[str, float],
    title: str,
    unit: str,
    *,
    intervals: Mapping[str, tuple[float, float]] | None = None,
    mark: tuple[str, float] | None = None,
) -> dg.MarkdownMetadataValue:
    """A horizontal bar per name.

    Args:
        intervals: by name, (low, high) around its value; a name without one has no whisker.
        mark: a name and a place for a vertical line.
    """

    def draw(axes: Any) -> None:
        axes.barh(list(values), list(values.values()), color="#3b6ea5")
        for name, (low, high) in (intervals or {}).items():
            axes.plot([low, high], [name, name], color="#222", linewidth=1.2, marker="|", markersize=7)
        if mark is not None:
            axes.axvline(mark[1], color="#b5482f", linewidth=1, linestyle="--", label=mark[0])
            axes.legend(frameon=False, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel(unit)

    return _figure(draw, title, height=0.6 + 0.32 * max(len(values), 1))


def curves(lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], title: str, x: str, y: str, **options: Any) -> Any:
    """Lines by name, each (x values, y values); `log_x`, `log_y` and `points` (names drawn as dots) are options."""

    def draw(axes: Any) -> None:
        for name, (xs, ys) in lines.items():
            style = {"marker": "o", "linestyle": "none"} if name in options.get("points", ()) else {"linewidth": 1.4}
            axes.plot(xs, ys, label=name, **style)
        if options.get("log_x"):
            axes.set_xscale("log")
        if options.get("log_y"):
            axes.set_yscale("log")
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if len(lines) > 1:
            axes.legend(frameon=False, fontsize=8)

    return _figure(draw, title, height=3.2)


def _figure(draw: Any, title: str, height: float) -> dg.MarkdownMetadataValue:
    from matplotlib.figure import Figure  # 2 s of import that no loading of the lineage should pay

    figure = Figure(figsize=(6.4, height), dpi=90, layout="constrained")
    axes = figure.add_subplot()
    draw(axes)
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    if len(png.getvalue()) > PLOT_BYTES:
        return dg.MetadataValue.md(f"{title}: the plot has {len(png.getvalue()):,} bytes, more than fits an event")
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{base64.b64encode(png.getvalue()).decode()})")


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= SAMPLE_CHARACTERS else f"{value[:SAMPLE_CHARACTERS]}..."
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:SAMPLE_CHARACTERS]
