"""Reading in bounded batches, and cutting files between row groups."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ops.dataflow.read import read_pieces
from ops.dataflow.shard import Piece, split
from ops.units import MiB

SCHEMA = pa.schema([("id", pa.string()), ("text", pa.string())])


def file_of(path: Path, texts: list[str], group_rows: int) -> Piece:
    ids = [f"{n:08x}" for n in range(len(texts))]
    pq.write_table(pa.table([ids, texts], schema=SCHEMA), path, row_group_size=group_rows)
    return Piece(str(path))


def texts_of(piece: Piece, batch_bytes: int, batch_rows: int = 1_000) -> list[list[str]]:
    return [batch["text"].to_pylist() for batch in read_pieces([piece], batch_bytes, batch_rows)]


def test_batches_are_bounded_by_rows_and_by_bytes(tmp_path: Path) -> None:
    texts = ["x" * 1_000] * 500
    piece = file_of(tmp_path / "even.parquet", [f"{n:04}{text}" for n, text in enumerate(texts)], 200)
    assert max(map(len, texts_of(piece, 1 << 30, 64))) == 64
    for batch in texts_of(piece, 20_000):
        assert 1 <= len(batch) <= 20
    assert sum(map(len, texts_of(piece, 20_000))) == 500


def test_one_long_document_among_short_ones_is_not_hidden_by_the_average(tmp_path: Path) -> None:
    texts = [*["short"] * 3_000, "y" * (10 * MiB), *["short"] * 3_000]
    batches = texts_of(file_of(tmp_path / "skewed.parquet", texts, 10_000), MiB, 8_192)
    assert [text for batch in batches for text in batch] == texts
    assert min(len(batch) for batch in batches if any(len(text) > MiB for text in batch)) == 1


def test_a_file_is_split_between_row_groups_and_every_row_is_in_one_piece(tmp_path: Path) -> None:
    texts = [f"{n:04}" + "z" * 100 for n in range(1_000)]
    whole = file_of(tmp_path / "f.parquet", texts, 100)
    pieces = list(split(whole, 25_000))
    assert len(pieces) > 3
    assert all(piece.row_groups for piece in pieces)
    assert [text for piece in pieces for batch in texts_of(piece, MiB) for text in batch] == texts
    for piece in pieces:
        first = texts_of(piece, MiB)[0][0]
        assert texts[piece.first_row] == first, "its first row is where it says"


def test_a_row_group_larger_than_the_bound_is_a_piece_of_its_own(tmp_path: Path) -> None:
    whole = file_of(tmp_path / "f.parquet", ["z" * 1_000] * 20, 5)
    assert [piece.row_groups for piece in split(whole, 1)] == [(0,), (1,), (2,), (3,)]


def test_unchosen_columns_weigh_nothing(tmp_path: Path) -> None:
    file_of(tmp_path / "f.parquet", [f"{n}" * 1_000 for n in range(100)], 10)
    assert len(list(split(Piece(str(tmp_path / "f.parquet"), ("id",)), 10_000))) == 1


def test_an_empty_file_gives_no_piece_and_no_batch(tmp_path: Path) -> None:
    empty = file_of(tmp_path / "f.parquet", [], 10)
    assert list(split(empty, 10)) == []
    assert texts_of(empty, 10) == []
