"""Programs run in this process, into a folder, without a store or a lease."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from infra.artifacts.artifact import Artifact, Artifacts
from infra.artifacts.config import ProgramConfig
from infra.artifacts.manifest import MANIFEST_NAME, Manifest, digest_of
from infra.artifacts.program import Program
from infra.artifacts.writer import Writer
from ops.shards import write_table


def build(program: Program, config: ProgramConfig, directory: Path, **inputs: Artifact | Artifacts) -> Artifact:
    """Run a program and publish what it wrote."""
    out = writer(directory)
    stats = program(config, **inputs, out=out)
    return publish(directory, out, stats.model_dump(mode="json"))


def writer(directory: Path) -> Writer:
    directory.mkdir(parents=True, exist_ok=True)
    return Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"))


def tables(directory: Path, named: Mapping[str, pa.Table], stats: Mapping[str, Any] | None = None) -> Artifact:
    """An artifact that holds these tables."""
    out = writer(directory)
    for name, table in named.items():
        write_table(out, name, table)
    return publish(directory, out, stats or {})


def file(directory: Path, name: str, path: Path) -> Artifact:
    """An artifact that holds a copy of one file."""
    out = writer(directory)
    with out.open(name) as stream:
        stream.write(path.read_bytes())
    return publish(directory, out, {})


def publish(directory: Path, out: Writer, stats: Mapping[str, Any]) -> Artifact:
    manifest = Manifest(recipe="0" * 16, payload={}, digest=digest_of(out.files), directory="attempt", files=out.files, stats=dict(stats))
    (directory / MANIFEST_NAME).write_text(manifest.model_dump_json())
    return Artifact(str(directory), manifest)
