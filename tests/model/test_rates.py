"""The laws against the published numbers of the run they were made for."""

import pytest

from model.batches import tokens_before
from model.rates import RateLaw, clipped_beta2, rates_of
from tests.model.test_batches import HERO


def test_the_law_gives_the_published_rates_of_the_67b_run() -> None:
    rates = rates_of(width=2560, tokens=tokens_before(HERO, 157_500), tokens_per_step=4096 * 8192)
    assert f"{rates.sphere_learning_rate:.4g}" == "0.003733"
    assert f"{rates.adam_learning_rate:.3g}" == "0.000861"
    assert rates.sphere_learning_rate / rates.adam_learning_rate == pytest.approx(13 / 3)
    assert rates.beta2 == 0.95
    assert f"{rates.eps:.3g}" == "5.3e-15"


@pytest.mark.parametrize(("tokens_per_step", "beta2"), [(131_072, 0.999), (262_144, 0.998001), (1, 0.9999), (33_554_432, 0.95)])
def test_beta2_forgets_over_tokens_not_steps_inside_its_bounds(tokens_per_step: int, beta2: float) -> None:
    assert rates_of(512, 10**9, tokens_per_step).beta2 == pytest.approx(beta2)
    assert clipped_beta2(beta2) == beta2


def test_rates_fall_with_tokens_and_width_and_rise_with_the_batch_until_the_cap() -> None:
    base = rates_of(512, 10**9, 2**17)
    assert rates_of(512, 2 * 10**9, 2**17).adam_learning_rate == pytest.approx(base.adam_learning_rate * 2**-0.395)
    assert rates_of(1024, 10**9, 2**17).adam_learning_rate == pytest.approx(base.adam_learning_rate * 2**-0.150)
    assert rates_of(512, 10**9, 2**18).adam_learning_rate == pytest.approx(base.adam_learning_rate * 2**0.5)
    capped = rates_of(512, 10**6, 2**17, RateLaw(cap=0.05))
    assert capped.sphere_learning_rate == 0.05
    assert capped.adam_learning_rate == pytest.approx(0.05 * 3 / 13)
