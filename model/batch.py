"""What the learner is fed: packed documents as arrays of one shape, on the host and on the device."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

PADDING_SEGMENT = -1
"""Segment ids below 0 mark padding: it has no loss weight and balancing does not see it."""


class Batch[A](NamedTuple):
    """One batch, all arrays [batch, tokens]. `A` is numpy's array on the host and JAX's on a device.

    Attributes:
        tokens, targets: int32; `targets[i]` is what follows `tokens[i]`.
        segment_ids: int32, from 0, growing by one with every document of a row; -1 on padding.
        loss_weights: float32; 1 where the target belongs to the token's own document, else 0.
    """

    tokens: A
    targets: A
    segment_ids: A
    loss_weights: A


HostBatch = Batch[npt.NDArray[Any]]


def batch_of(windows: npt.NDArray[Any], end_of_text_id: int, lengths: npt.NDArray[np.int64]) -> HostBatch:
    """Turn windows of a token stream into a batch: shift targets, number documents, weigh labels.

    Args:
        windows: [batch, tokens + 1] of any integer type.
        lengths: [batch], how many tokens of each window are real; the rest is padding.

    A document's end of text is its last token, so the label behind it (the next document's first token) weighs nothing.
    """
    tokens, targets = windows[:, :-1].astype(np.int32), windows[:, 1:].astype(np.int32)
    is_end = tokens == end_of_text_id
    segments = np.cumsum(is_end, axis=1, dtype=np.int32) - is_end
    is_real = np.arange(tokens.shape[1]) < lengths[:, None] - 1
    return Batch(
        tokens=np.where(is_real, tokens, end_of_text_id),
        targets=np.where(is_real, targets, end_of_text_id),
        segment_ids=np.where(is_real, segments, PADDING_SEGMENT).astype(np.int32),
        loss_weights=(is_real & ~is_end).astype(np.float32),
    )


def filled_up(batch: HostBatch, multiple: int) -> HostBatch:
    """A batch with rows of padding behind it, so that its rows divide."""
    missing = -batch.tokens.shape[0] % multiple
    if not missing:
        return batch
    fills = (0, 0, PADDING_SEGMENT, 0)
    return Batch(*(np.pad(array, ((0, missing), (0, 0)), constant_values=fill) for array, fill in zip(batch, fills, strict=True)))
