import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ops.crawl.config import JsonlSource, RawConfig
from ops.crawl.raw import raw
from ops.observe import observe
from ops.shards import read_table
from tests.builders import run_program

LINES = '{"id": "a", "text": "one\u2028still one"}\n\n{"id": 7, "text": "two"}\n{"text": "three"}\n'.encode()


def read(root: Path, directory: Path, **changes: Any) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    source = JsonlSource(domain="prose", licence="none", label="rows", root=str(root), **changes)
    artifact = run_program(raw, RawConfig(source=source, observed=observe(source)), directory)
    return read_table(artifact, "files-00000.parquet").to_pylist(), read_table(artifact, "rejects.parquet").to_pylist()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "rows"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_rows_are_read_whatever_the_compression_and_lines_end_at_line_feeds_alone(root: Path, tmp_path: Path, suffix: str) -> None:
    packed = {"": LINES, ".gz": gzip.compress(LINES[:30]) + gzip.compress(LINES[30:]), ".zst": pa.compress(LINES, "zstd", asbytes=True)}
    (root / f"a.jsonl{suffix}").write_bytes(packed[suffix])
    rows, rejects = read(root, tmp_path / "out")
    assert [(r["uri"], r["payload"]) for r in rows] == [
        ("a", "one\u2028still one".encode()),
        ("7", b"two"),
        (f"rows:a.jsonl{suffix}:4", b"three"),
    ]
    assert rejects == []


def test_bad_rows_are_kept_as_rejects_with_file_and_line(root: Path, tmp_path: Path) -> None:
    bad = [b"{", b'{"id": "x"}', b'{"text": 5}', b'["text"]', b'{"text": "\xff"}', b'{"text": "' + b"y" * 500 + b'"}', b'{"text": "good"}']
    (root / "a.jsonl").write_bytes(b"\n".join(bad))
    rows, rejects = read(root, tmp_path / "out", max_line_bytes=200)
    assert [r["payload"] for r in rows] == [b"good"]
    assert [r["uri"] for r in rejects] == [f"rows:a.jsonl:{n}" for n in range(1, 7)]
    assert [r["reason"] for r in rejects] == ["bad-row"] * 5 + ["too-large"]


def test_a_clipped_file_keeps_what_came_before_the_cut(root: Path, tmp_path: Path) -> None:
    lines = b"".join(b'{"text": "row %d %s"}\n' % (n, bytes([65 + n % 26]) * (n % 97)) for n in range(5_000))
    (root / "a.jsonl.gz").write_bytes(gzip.compress(lines)[:-500])
    rows, rejects = read(root, tmp_path / "out")
    assert 0 < len(rows) < 5_000
    assert [r["reason"] for r in rejects][-1:] in (["bad-row"], ["bad-encoding"])
