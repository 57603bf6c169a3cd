"""Document numbers."""

from pathlib import Path

import numpy as np

from ops.dedup.numbering import Numbering
from tests.ops.normalized import normalized


def test_documents_are_numbered_by_source_name_shard_and_row(tmp_path: Path) -> None:
    sources = {
        "b": normalized(tmp_path / "b", ["1", "2", "3"], shards=2),
        "a": normalized(tmp_path / "a", ["4", "5"]),
        "ab-empty": normalized(tmp_path / "e", []),
        "z-empty": normalized(tmp_path / "z", []),
    }
    numbering = Numbering.of(sources)
    assert [(shard.source, shard.start, shard.rows) for shard in numbering.shards] == [
        ("a", 0, 2),
        ("ab-empty", 2, 0),
        ("b", 2, 2),
        ("b", 4, 1),
        ("z-empty", 5, 0),
    ]
    assert numbering.documents == 5
    assert numbering.sources_of(np.arange(5)).to_pylist() == ["a", "a", "b", "b", "b"]


def test_no_source_has_no_documents() -> None:
    assert Numbering.of({}).documents == 0
