"""Small builders: artifacts from rows, and programs run in this process without a store."""

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


def run_program(program: Program, config: ProgramConfig, directory: Path, **inputs: Artifact | Artifacts) -> Artifact:
    """Run a program into `directory` and publish what it wrote there."""
    directory.mkdir(parents=True, exist_ok=True)
    out = Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"))
    stats = program(config, **inputs, out=out)
    return publish(directory, out, stats.model_dump(mode="json"))


def artifact_of(directory: Path, tables: Mapping[str, pa.Table], stats: Mapping[str, Any] | None = None) -> Artifact:
    """An artifact that holds the given tables as shards."""
    out = Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"))
    for name, table in tables.items():
        write_table(out, name, table)
    return publish(directory, out, dict(stats or {}))


def publish(directory: Path, out: Writer, stats: dict[str, Any]) -> Artifact:
    manifest = Manifest(recipe="0" * 16, payload={}, digest=digest_of(out.files), directory="attempt", files=out.files, stats=stats)
    (directory / MANIFEST_NAME).write_text(manifest.model_dump_json())
    return Artifact(str(directory), manifest)
