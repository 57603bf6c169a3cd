"""A power law with a floor, L(C) = E + A C^-a: fitting it, and saying how far it can be trusted.

The floor E is pinned unless there are enough points: over three to six cells a free floor runs away (0.578 with an exponent
of 0.058 in the reference runs), and any prediction far from the cells with it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from scipy.optimize import least_squares

Floats = NDArray[np.float64]

MIN_POINTS_FOR_FREE_FLOOR = 5
TOLERANCES: dict[str, Any] = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14}  # a planted law comes back exactly
FLOOR_GUESSES = np.linspace(0.0, 0.99, 34)  # starting floors as shares of the lowest loss


class ScalingError(ValueError):
    """The cells can't carry the law that was asked for."""


class PowerLaw(BaseModel):
    """L(C) = floor + exp(log_scale) * C^-exponent; C in FLOPs. The scale is kept as a logarithm: A spans many decades."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    floor: float
    log_scale: float
    exponent: float

    def loss_at(self, flops: float) -> float:
        """Expected loss after `flops` training FLOPs, in the unit of the fitted losses."""
        return float(self.floor + np.exp(self.log_scale - self.exponent * np.log(flops)))

    def flops_at(self, loss: float) -> float:
        """Training FLOPs that are expected to reach `loss`.

        Raises:
            ScalingError: the loss lies at or below the floor.
        """
        if loss <= self.floor:
            raise ScalingError(f"loss {loss:.4f} is not above the law's floor {self.floor:.4f}; no compute reaches it")
        return float(np.exp((self.log_scale - np.log(loss - self.floor)) / self.exponent))


def fit(flops: Sequence[float], losses: Sequence[float], *, floor: float | None) -> PowerLaw:
    """Least squares on the relative residuals of the losses.

    Args:
        flops: training FLOPs of each cell.
        losses: its loss.
        floor: pinned asymptote; None fits it as well.

    Raises:
        ScalingError: too few different budgets, a loss at or below a pinned floor, a free floor over fewer than five
            cells, or losses that don't fall with compute.
    """
    if len(set(flops)) < 2:
        raise ScalingError(f"{len(set(flops))} compute budget(s) carry no law; train ladder cells of at least two sizes")
    compute, loss = np.log(np.asarray(flops, np.float64)), np.asarray(losses, np.float64)
    law = _fit_free(compute, loss) if floor is None else _fit_pinned(compute, loss, floor)
    if law.exponent <= 0:
        raise ScalingError(
            f"the losses don't fall with compute (exponent {law.exponent:.4f}); a larger cell did no better, so train it longer or "
            "lower its learning rate before extrapolating"
        )
    return law


def leave_one_out(flops: Sequence[float], losses: Sequence[float], *, floor: float | None) -> list[PowerLaw]:
    """The law without each cell in turn; empty where a law over the rest can't be fitted (fewer than three budgets).

    A free floor stays where the whole fit puts it: it could not be fitted again without its last point.
    """
    if len(set(flops)) < 3:
        return []
    pinned = fit(flops, losses, floor=floor).floor
    rest = [[index for index in range(len(flops)) if index != left_out] for left_out in range(len(flops))]
    return [fit([flops[i] for i in kept], [losses[i] for i in kept], floor=pinned) for kept in rest]


def standard_error(whole: PowerLaw, without: Sequence[PowerLaw], flops: float) -> float | None:
    """Jackknife standard error of the predicted loss at `flops`; None without leave-one-out fits."""
    if not without:
        return None
    predictions = np.array([law.loss_at(flops) for law in without])
    count = len(predictions)
    return float(np.sqrt((count - 1) / count * np.sum((predictions - predictions.mean()) ** 2)))


def _fit_pinned(compute: Floats, loss: Floats, floor: float) -> PowerLaw:
    if floor >= loss.min():
        raise ScalingError(f"a cell's loss {loss.min():.4f} is at or below the pinned floor {floor:.4f}; lower pinned_floor")

    def residuals(p: Floats) -> Floats:
        return _residuals(floor, p[0], p[1], compute, loss)

    solution = least_squares(residuals, _straight_line(compute, loss - floor), x_scale="jac", **TOLERANCES)
    height, exponent = solution.x
    return _law(floor, height, exponent, compute)


def _fit_free(compute: Floats, loss: Floats) -> PowerLaw:
    if len(loss) < MIN_POINTS_FOR_FREE_FLOOR:
        raise ScalingError(
            f"a free floor needs at least {MIN_POINTS_FOR_FREE_FLOOR} cells, there are {len(loss)}; set pinned_floor or add cells"
        )
    lowest = float(loss.min())
    bounds = np.array([-np.inf, -np.inf, 0.0]), np.array([np.inf, np.inf, lowest])

    def residuals(p: Floats) -> Floats:
        return _residuals(p[2], p[0], p[1], compute, loss)

    starts = [np.append(_straight_line(compute, loss - share * lowest), share * lowest) for share in FLOOR_GUESSES]
    solutions = [least_squares(residuals, start, bounds=bounds, x_scale="jac", **TOLERANCES) for start in starts]
    height, exponent, floor = min(solutions, key=lambda solution: float(solution.cost)).x
    return _law(floor, height, exponent, compute)


def _straight_line(compute: Floats, excess: Floats) -> Floats:
    """Regression of log excess on centred log compute: [log excess at the centre, exponent]."""
    slope, height = np.polyfit(compute - compute.mean(), np.log(excess), 1)
    return np.array([height, -slope])


def _residuals(floor: float, height: float, exponent: float, compute: Floats, loss: Floats) -> Floats:
    # Centred compute: the scale at C = 1 lies dozens of decades away and would correlate with the exponent.
    return np.asarray((floor + np.exp(height - exponent * (compute - compute.mean()))) / loss - 1.0)


def _law(floor: float, height: float, exponent: float, compute: Floats) -> PowerLaw:
    return PowerLaw(floor=float(floor), log_scale=float(height + exponent * compute.mean()), exponent=float(exponent))
