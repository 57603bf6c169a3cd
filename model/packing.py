"""Held-out documents in rows of one shape: whole where they fit, cut where they must be, every token scored once."""

from collections.abc import Iterator, Sequence
from itertools import batched
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from infra.artifacts.artifact import Artifact
from model.batch import PADDING_SEGMENT, Batch
from ops.cache import Tokens, held_out_documents, load_token_bytes, read_ledger


class HeldOutBatch(NamedTuple):
    """One batch of one domain, [batch, tokens].

    Attributes:
        batch: its `loss_weights` are 1 on every scored target and 0 on padding alone.
        documents: int32, the document's number in its domain's selection (0, 1, ...), -1 on padding.
        target_bytes: int32, bytes of text that each scored target stands for; 0 for the end of text and padding.
    """

    domain: str
    batch: Batch
    documents: npt.NDArray[np.int32]
    target_bytes: npt.NDArray[np.int32]


class _Piece(NamedTuple):
    document: int
    tokens: Tokens  # inputs and the target behind the last


def held_out_batches(store: Artifact, sequence_tokens: int, batch_sequences: int, max_tokens: int) -> Iterator[HeldOutBatch]:
    """All held-out documents that an evaluation scores, domain by domain, in an order that never changes.

    Args:
        sequence_tokens: row length, and so the longest context; longer documents go on in a new piece without context.
            It is part of a score's identity.
        max_tokens: per domain; see `ops.cache.held_out_documents`, which n-gram baselines read too.

    Documents are packed greedily in order (next fit), each a segment of its own. A row may hold many; no target
    is scored twice or left out, so sums over batches do not depend on `batch_sequences`.
    """
    token_bytes, end_of_text = load_token_bytes(store), read_ledger(store).end_of_text_id
    for bucket in read_ledger(store).split("held_out"):
        rows = _rows(_pieces(store, bucket.domain, max_tokens, sequence_tokens), sequence_tokens)
        for group in batched(rows, batch_sequences):
            yield _assemble(bucket.domain, group, (batch_sequences, sequence_tokens), token_bytes, end_of_text)


def _pieces(store: Artifact, domain: str, max_tokens: int, sequence_tokens: int) -> Iterator[_Piece]:
    for number, tokens in enumerate(held_out_documents(store, domain, max_tokens)):
        for start in range(0, len(tokens) - 1, sequence_tokens):
            yield _Piece(number, tokens[start : start + sequence_tokens + 1])


def _rows(pieces: Iterator[_Piece], sequence_tokens: int) -> Iterator[list[_Piece]]:
    row: list[_Piece] = []
    room = sequence_tokens
    for piece in pieces:
        if len(piece.tokens) - 1 > room:
            yield row
            row, room = [], sequence_tokens
        row.append(piece)
        room -= len(piece.tokens) - 1
    if row:
        yield row


def _assemble(
    domain: str, rows: Sequence[list[_Piece]], shape: tuple[int, int], token_bytes: npt.NDArray[np.int32], end_of_text: int
) -> HeldOutBatch:
    tokens, targets = np.full(shape, end_of_text, np.int32), np.full(shape, end_of_text, np.int32)
    segments, documents = np.full(shape, PADDING_SEGMENT, np.int32), np.full(shape, -1, np.int32)
    for index, row in enumerate(rows):
        start = 0
        for segment, piece in enumerate(row):
            here = (index, slice(start, start + len(piece.tokens) - 1))
            tokens[here], targets[here] = piece.tokens[:-1], piece.tokens[1:]
            segments[here], documents[here] = segment, piece.document
            start = here[1].stop
    is_real = documents >= 0
    batch = Batch(tokens, targets, segments, is_real.astype(np.float32))
    return HeldOutBatch(domain, batch, documents, np.where(is_real, token_bytes[targets], 0).astype(np.int32))
