"""Models beside benchmarks: which result stands where, and in which order. Pure; lower bounds order, whatever happened to be graded."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from infra.dash.results import Estimate, Result

PANEL = "panel"  # the name of the column of means; a benchmark is never ordered under it
GATE = 0.9  # share of graded items below which a number is shown dimmed; it orders and hides nothing

Mean = Callable[[Sequence[Result | None]], Estimate]


@dataclass(frozen=True)
class Filters:
    """What a person wants to see.

    Attributes:
        benchmarks: only these, and a column of means over exactly them; empty for all, without means.
        model: only models whose name has this in it.
        cohort: only results of this launch; None for the newest valid ones of all.
        least_scored: share of items that must have a grade.
        least_benchmarks: benchmarks on the board that a model must have a result in.
        sort: the benchmark whose lower bound orders the models, or `PANEL`.
    """

    benchmarks: tuple[str, ...] = ()
    model: str = ""
    cohort: str | None = None
    least_scored: float = 0.0
    least_benchmarks: int = 0
    sort: str | None = None

    def query(self, **changes: object) -> str:
        """The query string of these filters with some changed."""
        fields = {**vars(self), **changes}
        pairs: list[tuple[str, object]] = [("benchmark", name) for name in fields["benchmarks"]]
        pairs += [("model", fields["model"])] if fields["model"] else []
        pairs += [("cohort", fields["cohort"])] if fields["cohort"] else []
        pairs += [("scored", f"{fields['least_scored']:g}")] if fields["least_scored"] else []
        pairs += [("benchmarks", fields["least_benchmarks"])] if fields["least_benchmarks"] else []
        pairs += [("sort", fields["sort"])] if fields["sort"] else []
        return urlencode(pairs)


@dataclass(frozen=True)
class Cell:
    """What one model did in one benchmark.

    Attributes:
        shown: the newest valid result.
        newer: a newer result that may not stand there: a failed or suspect one.
        hidden: a valid result that a coverage filter keeps out.
    """

    shown: Result | None = None
    newer: Result | None = None
    hidden: Result | None = None


@dataclass(frozen=True)
class Row:
    """One model. `mean` is over the whole panel, missing benchmarks bounded."""

    model: str
    cells: tuple[Cell, ...]
    mean: Estimate | None = None

    @property
    def present(self) -> int:
        """Benchmarks with a result."""
        return sum(cell.shown is not None for cell in self.cells)


@dataclass(frozen=True)
class Board:
    """The table, and what there is to choose from."""

    benchmarks: tuple[str, ...]
    rows: tuple[Row, ...]
    sort: str | None
    all_benchmarks: tuple[str, ...] = ()
    all_cohorts: tuple[str, ...] = field(default=())
    left_out: int = 0  # models that the filters keep out


def board_of(results: Iterable[Result], filters: Filters, mean: Mean) -> Board:
    """Lay results out.

    Args:
        mean: of one model's results over the panel; None where it has none.
    """
    found = list(results)
    all_benchmarks = tuple(sorted({result.benchmark for result in found}))
    benchmarks = tuple(name for name in all_benchmarks if not filters.benchmarks or name in filters.benchmarks)
    newest_of_cohort: dict[str, float] = {}
    for result in found:
        newest_of_cohort[result.cohort] = max(newest_of_cohort.get(result.cohort, 0.0), result.at.timestamp())
    by_place: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in found:
        if filters.cohort in (None, result.cohort) and filters.model.lower() in result.model.lower():
            by_place[result.model, result.benchmark].append(result)
    rows = []
    models = sorted({model for model, _ in by_place})
    for model in models:
        cells = tuple(_cell(by_place.get((model, name), ()), filters.least_scored) for name in benchmarks)
        panel = mean([cell.shown for cell in cells]) if filters.benchmarks and len(benchmarks) > 1 else None
        row = Row(model, cells, panel)
        if any(cell != Cell() for cell in cells) and row.present >= filters.least_benchmarks:
            rows.append(row)
    sort = _sort(filters, benchmarks, rows)
    return Board(
        benchmarks,
        tuple(sorted(rows, key=lambda row: _place(row, benchmarks, sort))),
        sort,
        all_benchmarks,
        tuple(sorted(newest_of_cohort, key=lambda cohort: (-newest_of_cohort[cohort], cohort))),
        len(models) - len(rows),
    )


def _cell(results: Sequence[Result], least_scored: float) -> Cell:
    newest_first = sorted(results, key=lambda result: (result.at, result.run), reverse=True)
    valid = next((result for result in newest_first if result.is_valid), None)
    newest = newest_first[0] if newest_first else None
    newer = newest if newest is not valid else None
    if valid is not None and valid.estimate is not None and least_scored > 0 and (valid.coverage is None or valid.coverage < least_scored):
        return Cell(None, newer, valid)
    return Cell(valid, newer)


def _sort(filters: Filters, benchmarks: Sequence[str], rows: Sequence[Row]) -> str | None:
    """What orders the models: what was asked for, else the means, else the benchmark that most models have."""
    has_means = any(row.mean is not None for row in rows)
    if filters.sort in benchmarks or (filters.sort == PANEL and has_means):
        return filters.sort
    if has_means:
        return PANEL
    counts = {name: sum(row.cells[place].shown is not None for row in rows) for place, name in enumerate(benchmarks)}
    return max(benchmarks, key=lambda name: counts[name], default=None)


def _place(row: Row, benchmarks: Sequence[str], sort: str | None) -> tuple[float, float, str]:
    """Best lower bound first; then the better upper one, then the name. Without a number: last."""
    if sort == PANEL:
        estimate = row.mean
    elif sort is not None and (shown := row.cells[list(benchmarks).index(sort)].shown) is not None:
        estimate = shown.estimate
    else:
        estimate = None
    return (-estimate.low, -estimate.high, row.model) if estimate else (1.0, 1.0, row.model)
