"""Log-probabilities of continuations, many at one time: sorted into buckets of similar length, so that little of a batch is filling
and few shapes are compiled. What a request scores does not hang on what it is batched with, up to the rounding of sums."""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import batched

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from model.architecture import ModelConfig
from model.batch import PADDING_SEGMENT
from model.eval.tasks.language_model import LanguageModel
from model.eval.tasks.requests import Continuation
from model.parameters import Params, head_of
from model.transformer import forward

SMALLEST_BUCKET = 64  # tokens; each shape below it would cost a compilation, and save little of a step
Heard = Callable[[int, int], None]
"""Told how many of how many sequences are scored."""


@dataclass(frozen=True)
class TokenScores:
    """What the model pays for each target of a continuation.

    Attributes:
        nats: float32 [targets], negative log-likelihood.
        is_likeliest: bool [targets], whether no token is likelier; of equals the one of the smallest id.
    """

    nats: NDArray[np.float32]
    is_likeliest: NDArray[np.bool_]


@dataclass
class _Row:
    """One sequence that is read once, for every continuation that has these inputs: `A`, `B`, `C` and `D` behind one question."""

    inputs: tuple[int, ...]
    places: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)


def score(
    model: LanguageModel,
    requests: Sequence[Continuation],
    batch_tokens: int,
    heard: Heard = lambda done, total: None,
    *,
    smallest_bucket: int = SMALLEST_BUCKET,
) -> list[TokenScores]:
    """Score continuations, in the order in which they are given.

    Args:
        batch_tokens: at most so many tokens, filling included, are read at one time, and one sequence at least.
        smallest_bucket: shorter sequences are filled up to so many tokens: fewer shapes to compile, more filling to compute.
    """
    rows: dict[tuple[int, ...], _Row] = {}
    spans: list[tuple[tuple[int, ...], slice]] = []
    for request in requests:
        row = rows.setdefault(request.inputs, _Row(request.inputs))
        first = len(row.targets)
        row.places += range(len(request.inputs) - len(request.targets), len(request.inputs))
        row.targets += request.targets
        spans.append((request.inputs, slice(first, len(row.targets))))
    found: dict[tuple[int, ...], TokenScores] = {}
    for group, length, width, count in _groups(list(rows.values()), model.context_tokens, batch_tokens, smallest_bucket):
        nats, is_likeliest = _scored(model, group, length, width, count)
        for index, row in enumerate(group):
            size = len(row.targets)
            found[row.inputs] = TokenScores(nats[index, :size], is_likeliest[index, :size])
        heard(len(found), len(rows))
    return [TokenScores(found[inputs].nats[span], found[inputs].is_likeliest[span]) for inputs, span in spans]


def bucket_of(size: int, largest: int | None = None, smallest: int = SMALLEST_BUCKET) -> int:
    """The shape a size is filled up to: `smallest` and its doublings, `largest` at most."""
    bucket = smallest
    while bucket < size:
        bucket *= 2
    return bucket if largest is None else max(size, min(bucket, largest))


def _groups(
    rows: Sequence[_Row], context_tokens: int, batch_tokens: int, smallest_bucket: int
) -> Iterator[tuple[tuple[_Row, ...], int, int, int]]:
    """(rows, tokens, targets, sequences) of every batch; the longest come first, so that a batch too large fails at once."""
    buckets: dict[tuple[int, int], list[_Row]] = defaultdict(list)
    for row in rows:
        length = bucket_of(len(row.inputs), context_tokens, smallest_bucket)
        buckets[length, _width(len(row.targets), length, smallest_bucket)].append(row)
    for (length, width), members in sorted(buckets.items(), reverse=True):
        count = max(1, batch_tokens // length)
        for group in batched(members, count):
            yield group, length, width, count


def _width(targets: int, length: int, smallest_bucket: int) -> int:
    """Places for targets: a few of an answer, or one a token of a text; more only where many answers share their inputs."""
    few = min(smallest_bucket, length)
    if targets <= few:
        return few
    return length if targets <= length else bucket_of(targets)


def _scored(
    model: LanguageModel, rows: Sequence[_Row], length: int, width: int, count: int
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    tokens, segments = np.zeros((count, length), np.int32), np.full((count, length), PADDING_SEGMENT, np.int32)
    places, targets = np.zeros((count, width), np.int32), np.zeros((count, width), np.int32)
    for index, row in enumerate(rows):
        tokens[index, : len(row.inputs)], segments[index, : len(row.inputs)] = row.inputs, 0
        places[index, : len(row.places)], targets[index, : len(row.targets)] = row.places, row.targets
    nats, is_likeliest = _target_scores(model.params, model.router_bias, model.config, tokens, segments, places, targets)
    return np.asarray(nats), np.asarray(is_likeliest)


@functools.partial(jax.jit, static_argnames="config")
def _target_scores(
    params: Params, router_bias: Array, config: ModelConfig, tokens: Array, segments: Array, places: Array, targets: Array
) -> tuple[Array, Array]:
    """Negative log-likelihoods and whether a target is the likeliest token, both [sequences, targets].

    Only rows that predict a target are multiplied with the head, and the logits of a chunk of them exist at one time.
    """
    hidden, _ = forward(params, router_bias, config, tokens, segments)
    rows = jnp.take_along_axis(hidden, places[..., None], axis=1).reshape(-1, config.width)
    head = head_of(params).astype(hidden.dtype)

    def one(row_and_target: tuple[Array, Array]) -> tuple[Array, Array]:
        row, target = row_and_target
        logits = jnp.matmul(row, head, preferred_element_type=jnp.float32)
        return jax.nn.logsumexp(logits) - logits[target], jnp.argmax(logits) == target

    nats, is_likeliest = jax.lax.map(one, (rows, targets.reshape(-1)), batch_size=config.kernels.loss_chunk_tokens)
    return nats.reshape(targets.shape), is_likeliest.reshape(targets.shape)
