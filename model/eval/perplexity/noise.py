"""Signal and noise of a slice: how far models lie apart on it, beside how far one run lies from itself under another seed.

A low ratio may say that the models were trained too briefly, not that the slice is bad; so every slice is shown, whatever its ratio.
"""

from collections.abc import Mapping, Sequence
from math import sqrt

Losses = Mapping[str, float]
"""Bits per byte by slice."""


def signal_to_noise(models: Sequence[Losses], repeats: Sequence[Sequence[Losses]]) -> dict[str, float | None]:
    """By slice, the deviation between models over the deviation between repetitions of one.

    Args:
        models: one entry a model; of repeated runs any one of them.
        repeats: groups of runs of one recipe that differ in their seeds alone.

    Returns:
        None where there are not two models, no group of two runs, or repetitions that agree to the last bit.
    """
    keys = sorted(set.intersection(*(set(one) for one in models))) if models else []
    return {key: _ratio([one[key] for one in models], [[one[key] for one in group] for group in repeats if len(group) > 1]) for key in keys}


def _ratio(models: Sequence[float], groups: Sequence[Sequence[float]]) -> float | None:
    freedom = sum(len(group) - 1 for group in groups)
    if len(models) < 2 or not freedom:
        return None
    noise = sqrt(sum(_squares(group) for group in groups) / freedom)  # pooled: groups differ in their means
    return sqrt(_squares(models) / (len(models) - 1)) / noise if noise else None


def _squares(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)
