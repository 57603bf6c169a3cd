"""An extraction that dies, and one of several processes, end in the same bytes."""

import subprocess
import sys
from pathlib import Path

import pytest

from infra.artifacts.artifact import Artifact
from infra.artifacts.manifest import MANIFEST_NAME
from ops.dataflow.config import Execution
from ops.extract.config import ExtractConfig
from ops.extract.documents import extract
from tests.builders import run_program
from tests.ops.extract.archives import gzipped, page, raw_artifact, warc

pytestmark = pytest.mark.faults

FILES = 2


def raw_files(directory: Path) -> Artifact:
    """Two archives, each of pages and a request, the second cut off in its last record."""
    archives = [
        gzipped(
            [page(f"http://h.example/{n}/{m}", f"Page {m} of file {n}, and the tide.") for m in range(3)]
            + [warc("request", "http://h.example/", b"GET /")]
        )
        for n in range(FILES)
    ]
    return raw_artifact(directory, {"warc/0.warc.gz": archives[0], "warc/1.warc.gz": archives[1][:-9]})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    directory = tmp_path_factory.mktemp("undisturbed")
    return run_program(extract, ExtractConfig(), directory / "out", raw=raw_files(directory / "raw"))


def test_an_extraction_killed_at_every_shard_goes_on_behind_what_was_committed(tmp_path: Path, undisturbed: Artifact) -> None:
    raw_files(tmp_path / "raw")
    codes: list[int] = []
    while not (tmp_path / "done" / MANIFEST_NAME).exists():
        codes.append(subprocess.run([sys.executable, "-m", "tests.ops.extract.mortal", str(tmp_path)], timeout=120).returncode)
        assert len(codes) <= 2 * FILES + 1
    assert codes == [-9] * 2 * FILES + [0]
    begun = (tmp_path / "journal").read_text().splitlines()
    stages = ("records", "documents")
    assert begun == [f"{stage} {index}" for stage in stages for index in range(FILES) for _ in range(2)], "each died once, then was done"
    done = Artifact.open_at(str(tmp_path / "done"))
    assert (done.manifest.files, done.stats) == (undisturbed.manifest.files, undisturbed.stats)


def test_several_processes_extract_the_same_bytes(tmp_path: Path, undisturbed: Artifact) -> None:
    config = ExtractConfig(execution=Execution(workers=2))
    found = run_program(extract, config, tmp_path / "out", raw=raw_files(tmp_path / "raw"))
    assert (found.manifest.files, found.stats) == (undisturbed.manifest.files, undisturbed.stats)
    assert found.stats["rejects"] == {"not-a-response": 1, "truncated": 1}
    assert found.stats["documents"] == 6
