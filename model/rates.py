"""Learning rates and moments from the size of a run: laws fitted once over a ladder, and what a change of batch does to them."""

from dataclasses import dataclass

BETA2_BOUNDS = (0.95, 0.9999)
BETA2_HALF_LIFE_TOKENS = 131_072  # beta2 is 0.999 for a step of so many tokens
BETA1 = 0.9062
EPS_SCALE = 9.676e-18  # times sqrt(steps); not normalised by the batch and tokens of a base run, as another source does


@dataclass(frozen=True)
class RateLaw:
    """adam rate = scale * T^-tokens_exponent * d^-width_exponent * sqrt(tokens a step); that of a sphere step is `sphere_ratio` times it.

    The defaults were fitted over 17 cells at 4,096 tokens a sequence (R^2 0.996; Grug MoE, May 2026).
    """

    scale: float = 0.06602
    tokens_exponent: float = 0.395
    width_exponent: float = 0.150
    sphere_ratio: float = 13 / 3
    cap: float = 0.05  # of the sphere step, which is relative: more would turn a matrix by degrees a step


@dataclass(frozen=True)
class Rates:
    """What the laws say for one run."""

    adam_learning_rate: float
    sphere_learning_rate: float
    beta1: float
    beta2: float
    eps: float


def rates_of(width: int, tokens: int, tokens_per_step: int, law: RateLaw | None = None) -> Rates:
    """The hyper-parameters of a run of `tokens` tokens in all."""
    found = law or RateLaw()
    adam: float = found.scale * tokens**-found.tokens_exponent * width**-found.width_exponent * tokens_per_step**0.5
    return Rates(
        adam_learning_rate=min(adam, found.cap / found.sphere_ratio),
        sphere_learning_rate=min(found.sphere_ratio * adam, found.cap),
        beta1=BETA1,
        beta2=clipped_beta2(0.999 ** (tokens_per_step / BETA2_HALF_LIFE_TOKENS)),
        eps=EPS_SCALE * (tokens / tokens_per_step) ** 0.5,
    )


def clipped_beta2(beta2: float) -> float:
    """beta2 inside the bounds in which the second moment is neither noise nor memory."""
    return min(max(beta2, BETA2_BOUNDS[0]), BETA2_BOUNDS[1])
