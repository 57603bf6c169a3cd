"""A program that publishes what a test has made: the upstream of an asset that is tested alone."""

from infra.artifacts.artifact import Artifact
from infra.artifacts.config import ProgramConfig
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer


class PlantConfig(ProgramConfig):
    """Where the files lie."""

    url: str


class PlantStats(Stats):
    files: int


@program(version="1")
def plant(config: PlantConfig, out: Writer) -> PlantStats:
    """Take an artifact's files, whose digest is then this one's."""
    artifact = Artifact.open_at(config.url)
    for entry in artifact.manifest.files:
        out.adopt(artifact.url_of(entry.name), entry)
    out.progress(1, 1, "artifacts")
    return PlantStats(files=len(artifact.names))
