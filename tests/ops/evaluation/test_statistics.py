import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import binomtest, norm

from ops.evaluation.statistics import Tally, UnequalPanelError, aggregate, difference, estimate, imbens_manski_critical, rank, wilson

SIMULATIONS = 4000
MONTE_CARLO = 3 * math.sqrt(0.95 * 0.05 / SIMULATIONS)  # three standard errors of a share that is 0.95


@st.composite
def tallies(draw: st.DrawFn) -> Tally:
    attempted = draw(st.integers(1, 2000))
    scored = draw(st.integers(0, attempted))
    return Tally(attempted, scored, draw(st.integers(0, scored)))


@settings(deadline=None)
@given(st.integers(0, 500), st.integers(1, 500))
def test_wilson_is_the_interval_that_scipy_has(correct: int, items: int):
    correct = min(correct, items)
    expected = binomtest(correct, items).proportion_ci(0.95, method="wilson")
    assert wilson(correct, items, 1.959963984540054) == pytest.approx((expected.low, expected.high), abs=1e-12)


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(1e-6, 0.5))
def test_the_critical_value_solves_its_equation_and_lies_between_one_and_two_sided(width: float, error: float):
    critical = imbens_manski_critical(width, error)
    assert 1.6448 < critical < 1.96
    assert ndtr(critical + width / error) - ndtr(-critical) == pytest.approx(0.95, abs=1e-6)


@settings(deadline=None)
@given(tallies())
def test_an_interval_is_never_narrower_than_what_is_missing(tally: Tally):
    found = estimate(tally)
    assert tally.attempted is not None
    assert tally.coverage is not None
    assert 0 <= found.low <= found.least <= found.most <= found.high <= 1
    assert found.high - found.low >= 1 - tally.coverage - 1e-12
    assert found.kind == ("complete" if tally.scored == tally.attempted else "bounded")


@settings(deadline=None)
@given(tallies())
def test_one_more_missing_item_never_narrows_the_bounds(tally: Tally):
    if tally.scored == 0:
        return
    fewer = Tally(tally.attempted, tally.scored - 1, tally.correct - 1 if tally.correct == tally.scored else tally.correct)
    assert estimate(fewer).most - estimate(fewer).least > estimate(tally).most - estimate(tally).least


@pytest.mark.parametrize("items", [1, 5, 40, 300, 5000])
def test_at_every_edge_the_interval_is_wilsons_by_scipy_at_the_level_of_imbens_and_manskis_critical_value(items: int):
    """Nothing graded, all graded, none right, all right: an oracle of scipy's own parts, whose level is solved for here."""
    two_sided = norm.ppf(0.975)

    def half(correct: int) -> float:
        found = binomtest(correct, items).proportion_ci(0.95, method="wilson")
        return (found.high - found.low) / 2 / two_sided

    for scored in {0, 1, items // 2, items - 1, items}:
        for correct in {0, scored // 2, scored}:
            most = correct + items - scored
            shift = (most - correct) / items / max(half(correct), half(most))
            critical = brentq(lambda value, shift=shift: norm.cdf(value + shift) - norm.cdf(-value) - 0.95, 1, 3)
            level = 2 * norm.cdf(critical) - 1
            low = binomtest(correct, items).proportion_ci(level, method="wilson").low
            high = binomtest(most, items).proportion_ci(level, method="wilson").high
            found = estimate(Tally(items, scored, correct))
            assert (found.low, found.high) == pytest.approx((low, high), abs=1e-10)


@pytest.mark.parametrize(
    ("one", "other", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((0, 10), (0, 10), -0.2775, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0),
        ((10, 10), (0, 10), 0.6075, 1.0),
    ],
)
def test_differences_of_complete_runs_are_those_that_newcombe_printed(
    one: tuple[int, int], other: tuple[int, int], low: float, high: float
):
    """Newcombe 1998, Statistics in Medicine 17, 873-890, table II, method 10."""
    (right, items), (other_right, other_items) = one, other
    found = difference(Tally(items, items, right), Tally(other_items, other_items, other_right))
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


def ungraded_if(adversary: str, right: np.ndarray, budget: int, generator: np.random.Generator) -> np.ndarray:
    """[items] which grades get lost, at most `budget` of them."""
    preferred = {"hides failures": ~right, "hides successes": right, "random": np.ones_like(right)}[adversary]
    candidates = generator.permutation(np.flatnonzero(preferred))[:budget]
    lost = np.zeros(len(right), bool)
    lost[candidates] = True
    return lost


@pytest.mark.parametrize("adversary", ["hides failures", "hides successes", "random"])
@pytest.mark.parametrize("missing_share", [0.0, 0.05, 0.4])
def test_the_interval_covers_the_true_rate_whoever_decides_what_is_missing(adversary: str, missing_share: float):
    generator = np.random.default_rng(11)
    items, coverages = 200, []
    interval = functools.cache(estimate)  # counts repeat, and each has one interval
    for rate in (0.05, 0.3, 0.5, 0.9):
        covered = 0
        for _ in range(SIMULATIONS):
            right = generator.random(items) < rate
            lost = ungraded_if(adversary, right, int(missing_share * items), generator)
            found = interval(Tally(items, int((~lost).sum()), int((right & ~lost).sum())))
            covered += found.low <= rate <= found.high
        coverages.append(covered / SIMULATIONS)
    assert np.mean(coverages) >= 0.95 - MONTE_CARLO
    assert min(coverages) >= 0.94 - MONTE_CARLO, "counts are whole: at n = 200 Wilson's own coverage dips to 0.94 at some rates"


def test_the_complete_case_rate_would_not_cover():
    """The control: what a leaderboard does without bounds fails under the same adversary."""
    generator = np.random.default_rng(11)
    covered = 0
    for _ in range(SIMULATIONS):
        right = generator.random(200) < 0.5
        lost = ungraded_if("hides failures", right, 40, generator)
        low, high = wilson(int((right & ~lost).sum()), int((~lost).sum()), 1.96)
        covered += low <= 0.5 <= high
    assert covered / SIMULATIONS < 0.2


def test_a_difference_that_missing_items_could_explain_is_not_identified():
    a, b = Tally(1000, 1000, 600), Tally(1000, 1000, 500)
    assert difference(a, b).sign == "higher"
    assert difference(b, a).sign == "lower"
    assert difference(Tally(1000, 850, 600), Tally(1000, 850, 500)).sign is None
    assert difference(a, Tally(1000, 850, 500)).sign is None, "B's missing items widen the bound for A"


@settings(deadline=None)
@given(tallies(), tallies())
def test_a_difference_turns_around_with_its_sides(a: Tally, b: Tally):
    assert difference(a, b).low == pytest.approx(-difference(b, a).high)
    assert difference(a, a).sign is None


def test_nobody_rises_by_losing_grades():
    order = rank({"honest": Tally(100, 100, 70), "half gone": Tally(100, 50, 45), "unknown": Tally(None, 100, 69)})
    assert [name for name, _ in order] == ["honest", "unknown", "half gone"]
    assert dict(order)["half gone"].complete_case == 0.9
    assert dict(order)["unknown"].kind == "sampling_only"


def test_a_panel_is_complete_or_bounded_never_whatever_ran():
    found = {"arc": Tally(100, 100, 80), "gsm8k": Tally(100, 90, 45)}
    with pytest.raises(UnequalPanelError, match="gsm8k missing or incomplete"):
        aggregate(["arc", "gsm8k"], found, "require_complete")
    with pytest.raises(UnequalPanelError, match="mmlu"):
        aggregate(["arc", "mmlu"], found, "require_complete")
    with pytest.raises(UnequalPanelError, match="names each evaluation once"):
        aggregate([], found, "bound")
    bounded = aggregate(["arc", "gsm8k", "mmlu"], found, "bound")
    assert bounded.least == pytest.approx((0.8 + 0.45 + 0) / 3)
    assert bounded.most == pytest.approx((0.8 + 0.55 + 1) / 3)
    assert bounded.complete_case is None
    whole = aggregate(["arc"], found, "require_complete")
    assert whole == pytest.approx(estimate(found["arc"])) or whole.low == pytest.approx(estimate(found["arc"]).low)


@pytest.mark.parametrize(("attempted", "scored", "correct"), [(10, 11, 3), (10, 5, 6), (10, 5, -1)])
def test_a_tally_that_cannot_be_is_refused(attempted: int, scored: int, correct: int):
    with pytest.raises(ValueError, match="graded twice"):
        Tally(attempted, scored, correct)


def test_nothing_attempted_says_nothing():
    assert (estimate(Tally(0, 0, 0)).low, estimate(Tally(0, 0, 0)).high) == (0.0, 1.0)
    assert estimate(Tally(5, 0, 0)).kind == "bounded"
    assert estimate(Tally(5, 0, 0)).complete_case is None
