"""Sums per document, divided once; intervals over documents."""

import math

import numpy as np
import pytest

from model.eval.intervals import bootstrap
from model.eval.scores import DocumentScores, summarize


def scores(nats: list[float], tokens: list[int], size_bytes: list[int]) -> DocumentScores:
    return DocumentScores(np.array(nats, np.float64), np.array(tokens, np.int64), np.array(size_bytes, np.int64))


def test_bits_per_byte_is_a_ratio_of_sums_and_not_a_mean_of_ratios() -> None:
    summary = summarize({"web": scores([10.0, 100.0], [5, 20], [10, 200])})
    assert summary["domains"]["web"]["bits_per_byte"] == pytest.approx(110 / math.log(2) / 210)
    assert summary["domains"]["web"]["nats_per_token"] == pytest.approx(110 / 25)


def test_macro_weighs_domains_and_micro_weighs_tokens() -> None:
    summary = summarize({"code": scores([30.0], [10], [40]), "web": scores([90.0], [90], [300])})
    assert summary["macro_nats_per_token"] == pytest.approx((3.0 + 1.0) / 2)
    assert summary["micro_nats_per_token"] == pytest.approx(120 / 100)


def test_an_empty_domain_enters_no_average() -> None:
    summary = summarize({"code": scores([30.0], [10], [40]), "web": scores([], [], [])})
    assert summary["macro_nats_per_token"] == pytest.approx(3.0)
    assert "nats_per_token" not in summary["domains"]["web"]


def heavy_tailed(seed: int, documents: int = 200) -> DocumentScores:
    rng = np.random.default_rng(seed)
    tokens = rng.lognormal(4.0, 1.0, documents).astype(np.int64) + 2
    rate = 3.0 + 0.5 * rng.standard_normal(documents)
    return DocumentScores(rate * tokens, tokens, tokens * 4)


def test_intervals_agree_with_the_variance_of_a_ratio() -> None:
    found = heavy_tailed(0)
    low, high = bootstrap({"web": found}, resamples=4000, level=0.95, seed=1)["web"]["nats_per_token"]
    ratio = found.nats.sum() / found.tokens.sum()
    residual = found.nats - ratio * found.tokens
    deviation = math.sqrt(len(residual) * residual.var(ddof=1)) / found.tokens.sum()  # linearised (Cochran 1977, 6.3)
    assert (high - low) / 2 == pytest.approx(1.96 * deviation, rel=0.08)
    assert low < ratio < high


def test_ninety_percent_intervals_cover_the_truth_about_ninety_percent_of_the_time() -> None:
    inside = 0
    for seed in range(150):
        low, high = bootstrap({"web": heavy_tailed(seed)}, resamples=300, level=0.9, seed=0)["web"]["nats_per_token"]
        inside += low < 3.0 < high
    assert 0.8 < inside / 150 < 0.97


def test_intervals_repeat_with_their_seed_and_move_with_another() -> None:
    found = {"web": heavy_tailed(0), "code": heavy_tailed(1)}
    once = bootstrap(found, resamples=200, level=0.95, seed=7)
    assert once == bootstrap(dict(reversed(found.items())), resamples=200, level=0.95, seed=7)
    assert once != bootstrap(found, resamples=200, level=0.95, seed=8)


def test_one_document_has_no_interval() -> None:
    intervals = bootstrap({"web": scores([3.0], [1], [4]), "code": scores([], [], [])}, resamples=50, level=0.95, seed=0)
    assert intervals == {"code": {}, "web": {}, "overall": {}}
