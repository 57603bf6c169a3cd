"""The power law: planted exponents come back, and what can't be known is refused."""

import numpy as np
import pytest

from model.law import PowerLaw, ScalingError, fit, leave_one_out, standard_error

MAY_LINE = PowerLaw(floor=1.6, log_scale=float(np.log(88.32)), exponent=0.0941)  # published: 2.533 at 1e21, 2.205 at 1e23
BUDGETS = [1e18, 3e18, 1e19, 3e19, 1e20, 3e20]


def planted(law: PowerLaw, budgets: list[float], noise: float = 0.0, seed: int = 0) -> list[float]:
    rng = np.random.default_rng(seed)
    return [law.loss_at(budget) * (1 + noise * rng.standard_normal()) for budget in budgets]


def test_the_published_line_gives_its_published_losses() -> None:
    assert MAY_LINE.loss_at(1e21) == pytest.approx(2.533, abs=5e-4)
    assert MAY_LINE.loss_at(1e23) == pytest.approx(2.205, abs=5e-4)
    assert MAY_LINE.flops_at(MAY_LINE.loss_at(4.2e20)) == pytest.approx(4.2e20, rel=1e-9)


@pytest.mark.parametrize("count", [2, 3, 4, 6])
def test_a_pinned_floor_recovers_the_planted_law_exactly(count: int) -> None:
    law = fit(BUDGETS[:count], planted(MAY_LINE, BUDGETS[:count]), floor=1.6)
    assert law.exponent == pytest.approx(MAY_LINE.exponent, rel=1e-7)
    assert law.log_scale == pytest.approx(MAY_LINE.log_scale, rel=1e-7)


def test_a_free_floor_recovers_the_planted_law_over_enough_decades() -> None:
    steep = PowerLaw(floor=1.6, log_scale=float(np.log(3e4)), exponent=0.25)
    budgets = [float(budget) for budget in np.geomspace(1e16, 1e22, 9)]
    law = fit(budgets, planted(steep, budgets), floor=None)
    assert law.floor == pytest.approx(1.6, rel=1e-4)
    assert law.exponent == pytest.approx(0.25, rel=1e-3)


def test_a_pinned_floor_recovers_the_exponent_within_a_hundredth_from_noisy_cells() -> None:
    # The reference's noise floor is ~0.0042 of 3.54 between equal runs, i.e. a deviation of about 0.05%.
    exponents = [fit(BUDGETS, planted(MAY_LINE, BUDGETS, noise=5e-4, seed=seed), floor=1.6).exponent for seed in range(20)]
    assert np.mean(exponents) == pytest.approx(MAY_LINE.exponent, rel=0.01)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_free_floor_over_fewer_than_five_cells_is_refused(count: int) -> None:
    with pytest.raises(ScalingError, match="a free floor needs at least 5 cells"):
        fit(BUDGETS[:count], planted(MAY_LINE, BUDGETS[:count]), floor=None)


def test_one_budget_a_low_loss_or_rising_losses_are_refused() -> None:
    with pytest.raises(ScalingError, match="1 compute budget"):
        fit([1e18, 1e18], [3.0, 3.1], floor=1.6)
    with pytest.raises(ScalingError, match="below the pinned floor"):
        fit([1e18, 1e19], [3.0, 1.5], floor=1.6)
    with pytest.raises(ScalingError, match="don't fall with compute"):
        fit([1e18, 1e19], [3.0, 3.1], floor=1.6)
    with pytest.raises(ScalingError, match="no compute reaches it"):
        MAY_LINE.flops_at(1.6)


def test_leave_one_out_says_nothing_below_three_cells_and_zero_without_noise() -> None:
    assert leave_one_out(BUDGETS[:2], planted(MAY_LINE, BUDGETS[:2]), floor=1.6) == []
    assert standard_error(MAY_LINE, [], 1e21) is None
    without = leave_one_out(BUDGETS, planted(MAY_LINE, BUDGETS), floor=1.6)
    error = standard_error(MAY_LINE, without, 1e23)
    assert error == pytest.approx(0.0, abs=1e-8)


def test_the_standard_error_is_of_the_size_of_the_real_error_of_extrapolations() -> None:
    errors, claims = [], []
    for seed in range(60):
        losses = planted(MAY_LINE, BUDGETS, noise=1e-3, seed=seed)
        law = fit(BUDGETS, losses, floor=1.6)
        claim = standard_error(law, leave_one_out(BUDGETS, losses, floor=1.6), 1e23)
        assert claim is not None
        claims.append(claim)
        errors.append(law.loss_at(1e23) - MAY_LINE.loss_at(1e23))
    ratio = np.sqrt(np.mean(np.square(claims))) / np.sqrt(np.mean(np.square(errors)))
    assert 0.7 < ratio < 1.5  # a jackknife over six cells is a little conservative
