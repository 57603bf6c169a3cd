import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from ops.crawl.config import FilesSource, RawConfig
from ops.crawl.listing import SourceError, list_entries, resolve_root
from ops.crawl.raw import raw
from ops.observe import observe
from ops.shards import read_table
from tests.builders import run_program


def source_of(root: Path, **changes: Any) -> FilesSource:
    return FilesSource(domain="code", licence="none", label="tree", root=str(root), **changes)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "json").mkdir(parents=True)
    (root / "json" / "decoder.py").write_text("import json\n")
    (root / "README").write_text("read me\n")
    (root / "notes.md").write_text("# Notes\n")
    (root / ".hidden").write_text("hidden\n")
    (root / ".git").mkdir()
    (root / ".git" / "config.py").write_text("hidden\n")
    return root


def read(source: FilesSource, directory: Path) -> Artifact:
    return run_program(raw, RawConfig(source=source, observed=observe(source)), directory)


def rows(artifact: Artifact, name: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = read_table(artifact, name).to_pylist()
    return found


def test_files_get_relative_uris_and_media_types_and_hidden_ones_are_no_data(tree: Path, tmp_path: Path) -> None:
    artifact = read(source_of(tree), tmp_path / "out")
    assert rows(artifact, "files-00000.parquet") == [
        {"uri": "tree:README", "media_type": "text/plain", "payload": b"read me\n"},
        {"uri": "tree:json/decoder.py", "media_type": "text/x-python", "payload": b"import json\n"},
        {"uri": "tree:notes.md", "media_type": "text/markdown", "payload": b"# Notes\n"},
    ]
    assert artifact.stats["records"] == 3


def test_where_the_tree_lies_changes_nothing(tree: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    first = read(source_of(tree), tmp_path / "1")
    tree.rename(moved)
    assert read(source_of(moved), tmp_path / "2").digest == first.digest


def test_globs_choose_and_leave_out(tree: Path) -> None:
    assert [e.name for e in list_entries(source_of(tree, include=("**/*.py", "*.md")))] == ["json/decoder.py", "notes.md"]
    assert [e.name for e in list_entries(source_of(tree, exclude=("json/**",)))] == ["README", "notes.md"]
    assert [e.name for e in list_entries(source_of(tree, include=("*",)))] == ["README", "notes.md"]


def test_gzipped_files_are_inflated_and_named_by_what_is_inside(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "a.html.gz").write_bytes(gzip.compress(b"<html></html>"))
    (root / "b.txt.gz").write_bytes(b"\x1f\x8b\x08 broken")
    artifact = read(source_of(root), tmp_path / "out")
    assert rows(artifact, "files-00000.parquet") == [{"uri": "tree:a.html.gz", "media_type": "text/html", "payload": b"<html></html>"}]
    assert [(r["uri"], r["reason"]) for r in rows(artifact, "rejects.parquet")] == [("tree:b.txt.gz", "bad-encoding")]


def test_a_file_that_cant_be_read_or_is_too_large_is_a_reject(tree: Path, tmp_path: Path) -> None:
    os.symlink(tmp_path / "nowhere", tree / "dangling.txt")
    (tree / "large.txt").write_bytes(b"x" * 101)
    (tree / "bomb.txt.gz").write_bytes(gzip.compress(b"x" * 5_000))
    artifact = read(source_of(tree, max_file_bytes=100), tmp_path / "out")
    assert [(r["uri"], r["reason"]) for r in rows(artifact, "rejects.parquet")] == [
        ("tree:bomb.txt.gz", "too-large"),
        ("tree:dangling.txt", "unreadable"),
        ("tree:large.txt", "too-large"),
    ]
    assert artifact.stats["records"] == 6
    assert artifact.stats["rejects"] == 3


def test_the_fingerprint_follows_content_and_names_and_nothing_else(tree: Path) -> None:
    source = source_of(tree)
    before = observe(source)
    os.utime(tree / "README", (1, 1))
    assert observe(source) == before
    (tree / "README").write_text("read ME\n")
    changed = observe(source)
    (tree / "README").rename(tree / "READ.ME")
    assert len({before, changed, observe(source)}) == 3


def test_a_source_that_changes_after_it_was_planned_is_refused(tree: Path, tmp_path: Path) -> None:
    config = RawConfig(source=source_of(tree), observed=observe(source_of(tree)))
    (tree / "README").write_text("changed\n")
    out = Writer(str(tmp_path / "out"), scratch_url=str(tmp_path / "scratch"))
    with pytest.raises(SourceError, match="changed while being read"):
        raw(config, out=out)


@pytest.mark.parametrize(("name", "says"), [("missing", "does not exist"), ("file", "is a file")])
def test_a_missing_root_is_one_clear_sentence(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match=f"{name} {says}; point the source's `root`"):
        observe(source_of(tmp_path / name))


def test_a_source_without_any_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nothing under .* matches \*\*/\*\.rs"):
        observe(source_of(tmp_path, include=("**/*.rs",)))


def test_roots_may_name_places_of_this_machine() -> None:
    assert Path(resolve_root("${stdlib}"), "json", "decoder.py").is_file()
    assert Path(resolve_root("${repository}/ops/config.py")).is_file()
    assert Path(resolve_root("${site-packages}"), "pyarrow").is_dir()
    with pytest.raises(SourceError, match=r"\$\{home\} is unknown; choose one of \$\{stdlib\}, \$\{site-packages\}, \$\{repository\}"):
        resolve_root("${home}/x")
