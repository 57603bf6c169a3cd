"""Every token but a document's first is scored once, whatever the row length."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.eval import packing
from model.eval.packing import batch_of, pieces_of, rows_of

LENGTHS = st.lists(st.integers(2, 40), max_size=12)


@given(lengths=LENGTHS, sequence_tokens=st.integers(2, 16))
def test_every_token_but_a_documents_first_is_the_target_of_exactly_one_position(lengths: list[int], sequence_tokens: int) -> None:
    documents = [np.arange(1, length + 1) + 100 * number for number, length in enumerate(lengths)]
    rows = list(rows_of(pieces_of(documents, sequence_tokens), sequence_tokens))
    batch = batch_of(rows, max(len(rows), 1), sequence_tokens)
    real = batch.loss_weights > 0
    pairs = sorted(zip(batch.tokens[real].tolist(), batch.targets[real].tolist(), strict=True))
    assert pairs == [(first, second) for document in documents for first, second in pairwise(document.tolist())]
    assert (batch.segment_ids[~real] < 0).all()


@given(lengths=LENGTHS, sequence_tokens=st.integers(2, 16), open_rows=st.integers(1, 4))
def test_pieces_keep_their_order_in_a_row_and_rows_that_of_their_first_pieces(
    lengths: list[int], sequence_tokens: int, open_rows: int
) -> None:
    documents = [np.arange(length) + 100 * number for number, length in enumerate(lengths)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "OPEN_ROWS", open_rows)
        rows = list(rows_of(pieces_of(documents, sequence_tokens), sequence_tokens))
    starts = [[int(piece.tokens[0]) for piece in row.pieces] for row in rows]
    assert all(row == sorted(row) for row in starts)
    assert [row[0] for row in starts] == sorted(row[0] for row in starts)
    assert sum(len(row.pieces) for row in rows) == len(list(pieces_of(documents, sequence_tokens)))


@pytest.mark.parametrize(("median", "spread", "sequence_tokens"), [(300, 1.0, 4096), (400, 1.2, 2048), (150, 1.0, 512)])
def test_nine_tenths_of_what_is_computed_are_tokens_of_documents(median: int, spread: float, sequence_tokens: int) -> None:
    lengths = np.random.default_rng(0).lognormal(np.log(median), spread, 1000).astype(int) + 2
    rows = rows_of(pieces_of([np.zeros(length, np.int32) for length in lengths], sequence_tokens), sequence_tokens)
    assert np.sum(lengths - 1) / (len(list(rows)) * sequence_tokens) >= 0.9


@given(lengths=LENGTHS, sequence_tokens=st.integers(2, 16))
def test_rows_keep_to_their_length_and_two_neighbours_never_fit_into_one(lengths: list[int], sequence_tokens: int) -> None:
    documents = [np.arange(length) for length in lengths]
    sizes = [sum(len(piece.tokens) for piece in row.pieces) for row in rows_of(pieces_of(documents, sequence_tokens), sequence_tokens)]
    assert all(0 < size <= sequence_tokens for size in sizes)
    first = [len(row.pieces[0].tokens) for row in rows_of(pieces_of(documents, sequence_tokens), sequence_tokens)]
    assert all(size + following > sequence_tokens for size, following in zip(sizes, first[1:], strict=False))


@given(lengths=LENGTHS)
def test_pieces_of_one_row_are_segments_of_their_own(lengths: list[int]) -> None:
    documents = [np.full(length, number) for number, length in enumerate(lengths)]
    rows = list(rows_of(pieces_of(documents, 16), 16))
    batch = batch_of(rows, max(len(rows), 1), 16)
    for tokens, segments in zip(batch.tokens, batch.segment_ids, strict=True):
        changes = np.diff(segments)[segments[1:] >= 0] != 0
        boundaries = np.diff(tokens)[segments[1:] >= 0] != 0
        assert (changes | ~boundaries).all()
