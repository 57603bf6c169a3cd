"""Which result stands where on the board, and in which order."""

from collections.abc import Sequence

import pytest

from infra.dash.board import PANEL, Board, Filters, board_of
from infra.dash.results import Result
from tests.infra.dash.results import InMemory, failed, result

MEAN = InMemory().mean


def laid_out(results: Sequence[Result], **filters: object) -> Board:
    return board_of(results, Filters(**filters), MEAN)  # type: ignore[arg-type]


def models(board: Board) -> list[str]:
    return [row.model for row in board.rows]


def test_models_are_ordered_by_the_lower_bound_and_never_by_the_rate_among_graded_items() -> None:
    steady = result("steady", "arc", 0.55, 0.65)
    lucky = result("lucky", "arc", 0.30, 0.95, scored=40, correct=38)
    board = laid_out([lucky, steady])
    assert models(board) == ["steady", "lucky"]
    assert lucky.estimate is not None
    assert steady.estimate is not None
    assert (lucky.estimate.complete_case or 0) > (steady.estimate.complete_case or 0)


def test_equal_lower_bounds_are_ordered_by_the_upper_one_and_then_by_name() -> None:
    board = laid_out([result("b", "arc", 0.5, 0.6), result("a", "arc", 0.5, 0.6), result("c", "arc", 0.5, 0.7)])
    assert models(board) == ["c", "a", "b"]


def test_the_newest_valid_result_stands_and_no_failed_or_suspect_one_takes_its_place() -> None:
    old, new = result("m", "arc", 0.4, 0.5), result("m", "arc", 0.5, 0.6, hours=1, cohort="winter")
    crashed = failed("m", "arc", hours=2, run="crashed")
    suspect = result("m", "arc", 0.0, 0.03, hours=3, run="suspect", suspicions=("no answer could be taken",))
    for later in ((crashed,), (suspect,), (crashed, suspect)):
        (cell,) = laid_out([old, new, *later]).rows[0].cells
        assert cell.shown is new
        assert cell.newer is later[-1]
    (cell,) = laid_out([crashed]).rows[0].cells
    assert (cell.shown, cell.newer) == (None, crashed)


def test_a_single_cohort_shows_its_own_results_alone() -> None:
    results = [result("m", "arc", 0.4, 0.5), result("m", "arc", 0.5, 0.6, hours=1, cohort="winter"), result("n", "arc", 0.1, 0.2)]
    board = laid_out(results, cohort="autumn")
    assert [row.cells[0].shown for row in board.rows] == [results[0], results[2]]
    assert board.all_cohorts == ("winter", "autumn"), "newest first"


def test_a_filter_on_graded_items_says_what_it_hides_and_an_unknown_share_is_never_enough() -> None:
    whole = result("whole", "arc", 0.5, 0.6)
    part = result("part", "arc", 0.4, 0.8, scored=80, correct=50)
    unknown = result("unknown", "arc", 0.7, 0.8, attempted=None)
    board = laid_out([whole, part, unknown], least_scored=0.9)
    assert models(board) == ["whole", "part", "unknown"]
    assert [row.cells[0].hidden for row in board.rows] == [None, part, unknown]


def test_models_that_cover_too_few_benchmarks_are_left_out_and_counted() -> None:
    results = [result("both", "arc", 0.1, 0.2), result("both", "gsm8k", 0.1, 0.2), result("one", "arc", 0.8, 0.9)]
    board = laid_out(results, least_benchmarks=2)
    assert (models(board), board.left_out) == (["both"], 1)


def test_means_exist_over_an_explicit_panel_alone_and_a_missing_benchmark_can_not_lift_anybody() -> None:
    results = [
        result("broad", "arc", 0.5, 0.6),
        result("broad", "gsm8k", 0.3, 0.4),
        result("narrow", "arc", 0.7, 0.8),
        result("broad", "piqa", 0.5, 0.6),
    ]
    assert {row.mean for row in laid_out(results).rows} == {None}
    assert {row.mean for row in laid_out(results, benchmarks=("arc",)).rows} == {None}
    board = laid_out(results, benchmarks=("arc", "gsm8k"))
    assert board.sort == PANEL
    assert models(board) == ["broad", "narrow"]
    assert [row.mean.low for row in board.rows if row.mean] == [pytest.approx(0.4), pytest.approx(0.35)]


def test_a_benchmark_that_is_chosen_orders_the_models() -> None:
    results = [result("a", "arc", 0.5, 0.6), result("a", "piqa", 0.1, 0.2), result("b", "arc", 0.4, 0.6), result("b", "piqa", 0.3, 0.4)]
    assert models(laid_out(results, sort="arc")) == ["a", "b"]
    assert models(laid_out(results, sort="piqa")) == ["b", "a"]
    assert laid_out(results, sort="nothing").sort in ("arc", "piqa")


def test_a_number_that_is_no_rate_stands_on_the_board_and_orders_nothing() -> None:
    results = [result("a", "text", 0, 0, estimate=None, measure=1.2), result("b", "text", 0, 0, estimate=None, measure=0.8)]
    board = laid_out(results)
    assert [row.cells[0].shown for row in board.rows] == results
    assert [row.cells[0].shown for row in laid_out(results, least_scored=1.0).rows] == results


def test_a_board_of_nothing_has_no_rows() -> None:
    assert laid_out([]) == Board((), (), None)


def test_filters_survive_as_a_query() -> None:
    filters = Filters(("a b", "c&d"), "x", "autumn", 0.9, 2, "c&d")
    assert filters.query() == "benchmark=a+b&benchmark=c%26d&model=x&cohort=autumn&scored=0.9&benchmarks=2&sort=c%26d"
    assert Filters().query(sort=PANEL) == "sort=panel"
