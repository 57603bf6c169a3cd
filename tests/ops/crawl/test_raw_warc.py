from pathlib import Path

import fsspec
import pytest

from ops.crawl.config import RawConfig, WarcSource
from ops.crawl.listing import SourceError
from ops.crawl.raw import raw
from ops.observe import observe
from tests.builders import run_program


def source_of(root: str) -> WarcSource:
    return WarcSource(domain="web", licence="none", root=root)


def test_files_are_copied_byte_for_byte_under_their_own_names(tmp_path: Path) -> None:
    root = tmp_path / "warcs"
    (root / "2024").mkdir(parents=True)
    (root / "a.warc.gz").write_bytes(b"\x1f\x8b any bytes")
    (root / "2024" / "a.warc.gz").write_bytes(b"others")
    (root / "readme.txt").write_bytes(b"no archive")
    source = source_of(str(root))
    artifact = run_program(raw, RawConfig(source=source, observed=observe(source)), tmp_path / "out")
    assert artifact.names == ("warc/2024/a.warc.gz", "warc/a.warc.gz")
    with artifact.open("warc/a.warc.gz") as stream:
        assert stream.read() == b"\x1f\x8b any bytes"
    assert artifact.stats["records"] == 2


def test_a_prefix_of_any_store_can_be_read(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/crawl/x/a.warc.gz", b"content")
    memory.pipe_file("/crawl/.tmp/b.warc.gz", b"half a file")
    try:
        source = source_of("memory://crawl")
        artifact = run_program(raw, RawConfig(source=source, observed=observe(source)), tmp_path / "out")
        assert artifact.names == ("warc/x/a.warc.gz",)
        with pytest.raises(SourceError, match="memory://nowhere does not exist"):
            observe(source_of("memory://nowhere"))
    finally:
        memory.rm("/crawl", recursive=True)


def test_an_archive_that_cant_be_read_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.warc.gz").symlink_to(tmp_path / "nowhere")
    with pytest.raises(SourceError, match=r"a\.warc\.gz can't be read \(No such file or directory\); repair it or exclude it"):
        observe(source_of(str(tmp_path)))


def test_names_that_look_like_globs_are_names(tmp_path: Path) -> None:
    root = tmp_path / "warcs"
    root.mkdir()
    (root / "part[1]*.warc").write_bytes(b"WARC")
    source = source_of(f"file://{root}")
    assert run_program(raw, RawConfig(source=source, observed=observe(source)), tmp_path / "out").names == ("warc/part[1]*.warc",)
