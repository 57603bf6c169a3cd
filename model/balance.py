"""Quantile balancing: the selection bias under which every expert would have been chosen by its fair share of a batch."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from model.architecture import ModelConfig
from model.shards import Axes, highest, lowest, total

DIGIT_BITS = 4  # of a quantile, decided in one count: 15 comparisons an entry, and 8 additions over shards instead of 32


def balanced_bias(scores: Array, biased: Array, config: ModelConfig, is_token: Array, *, axes: Axes) -> Array:
    """The next step's bias.

    Args:
        scores: [T, E] float32 router scores without bias.
        biased: [T, E] the scores that chose.
        is_token: [T] booleans; other rows neither count nor vote.
        axes: mapped axes whose shards together are the batch.

    Returns:
        [E], mean 0. An expert's bias is minus the upper K/E quantile of its margins over the cutoff, where a token's cutoff
        is its best biased score that was not chosen. The same for any sharding, by either estimator.
    """
    cutoff = jax.lax.top_k(biased, config.experts_per_token + 1)[0][:, -1:]
    margins = scores - cutoff
    tokens = total(jnp.sum(is_token), axes)
    if config.router_quantile == "histogram":
        quantile = _by_histogram(margins, is_token, tokens, config, axes)
    else:
        fair_share = jnp.maximum(tokens * config.experts_per_token // config.experts, 1)
        quantile = kth_largest(jnp.where(is_token[:, None], margins, -jnp.inf), fair_share, axes=axes)
    bias = jnp.where(tokens > 0, -quantile, 0.0)
    return bias - jnp.mean(bias)


def kth_largest(values: Array, k: Array, *, axes: Axes) -> Array:
    """The k-th largest entry of every column, exactly, without sorting.

    Args:
        values: [T, E] float32.
        k: scalar integer from 1; k-th over all shards.

    Floats keep their order as unsigned integers once negative ones are flipped, so the answer's 32 bits are found from
    the top by counting, four at a time. Counts add over shards, which sorting does not; each addition is a meeting of all devices.
    """
    bits = jax.lax.bitcast_convert_type(values, jnp.uint32)
    ordered = jnp.where(bits >> 31 == 1, ~bits, bits | jnp.uint32(1 << 31))
    digits = jnp.arange(1, 1 << DIGIT_BITS, dtype=jnp.uint32)[:, None]

    def decide(i: Array, found: Array) -> Array:
        lowest_bit = (32 - DIGIT_BITS * (i + 1)).astype(jnp.uint32)
        candidates = found | (digits << lowest_bit)
        reached = total(jnp.sum(ordered >= candidates[:, None], axis=1), axes)  # falls with the digit
        return found | (jnp.sum(reached >= k, axis=0).astype(jnp.uint32) << lowest_bit)

    found = jax.lax.fori_loop(0, 32 // DIGIT_BITS, decide, jnp.zeros(values.shape[-1], jnp.uint32))
    restored = jnp.where(found >> 31 == 1, found & jnp.uint32((1 << 31) - 1), ~found)
    return jax.lax.bitcast_convert_type(restored, jnp.float32)


def histogram(values: Array, is_token: Array, low: Array, high: Array, bins: int) -> Array:
    """Counts [E, bins] int32 of each column's entries over equal bins of low..high; those of shards and microbatches add up.

    Args:
        values: [T, E] float32, inside low..high wherever is_token [T] holds; other rows are not counted.
    """
    width = jnp.maximum(high - low, np.finfo(np.float32).tiny) / bins
    bin_of = jnp.clip(((values - low) / width).astype(jnp.int32), 0, bins - 1)
    columns = jnp.broadcast_to(jnp.arange(values.shape[-1]), values.shape)
    empty = jnp.zeros((values.shape[-1], bins), jnp.int32)
    return empty.at[columns, bin_of].add(is_token[:, None].astype(jnp.int32))


def quantile_of(counts: Array, low: Array, high: Array, rank: Array) -> Array:
    """The `rank`-th largest entry [E] of every histogram [E, bins], linearly inside the bin where the count reaches it.

    Args:
        rank: float32 scalar above 0, at most the entries of a histogram.
    """
    bins = counts.shape[-1]
    width = (high - low) / bins
    reached = jnp.cumsum(counts[:, ::-1], axis=-1)  # entries at or above each bin, from the top
    crossing = jnp.argmax(reached >= rank, axis=-1)
    inside = jnp.take_along_axis(counts[:, ::-1], crossing[:, None], axis=-1)[:, 0]
    above = jnp.take_along_axis(reached, crossing[:, None], axis=-1)[:, 0] - inside
    return high - width * (crossing + (rank - above) / jnp.maximum(inside, 1))


def _by_histogram(margins: Array, is_token: Array, tokens: Array, config: ModelConfig, axes: Axes) -> Array:
    low = lowest(jnp.min(jnp.where(is_token[:, None], margins, jnp.inf)), axes)
    high = highest(jnp.max(jnp.where(is_token[:, None], margins, -jnp.inf)), axes)
    counts = total(histogram(margins, is_token, low, high, config.router_histogram_bins), axes)
    return quantile_of(counts, low, high, tokens * (config.experts_per_token / config.experts))
