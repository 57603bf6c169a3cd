"""A lab in a folder: a tiny profile, its home, and the commands that its people type."""

import os
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from infra.artifacts.store import ArtifactStore

REPOSITORY = Path(__file__).parents[2]
PROFILE = Path(__file__).parent / "tiny.yaml"
WORDS = (
    *("harbour", "tide", "cargo", "pilot", "beacon", "ledger", "anchor", "winter"),
    *("copper", "signal", "garden", "lantern", "meadow", "violin", "orchard", "granite"),
)


@dataclass
class Lab:
    """One storage root, one Dagster home, one set of texts."""

    home: Path
    texts: Path
    profile: Path = PROFILE
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        # Compiled programs are shared between labs: they change no result, and compiling is most of a tiny run.
        mine = {
            "HOME_OF_TEST": str(self.home),
            "TEXTS": str(self.texts),
            "JAX_CACHE": str(self.texts.parent / "jax-cache"),
            "SEAWAY_PROFILE": str(self.profile),
        }
        return {**os.environ, **mine, "DAGSTER_HOME": str(self.home / "dagster"), "PYTHONUNBUFFERED": "1", **self.extra}

    @property
    def store(self) -> ArtifactStore:
        return ArtifactStore(str(self.home / "artifacts"))

    def run(self, *command: str, timeout_s: float = 280) -> subprocess.CompletedProcess[str]:
        """Run a command of the virtual environment to its end, in the repository."""
        return subprocess.run(
            self._argv(command), cwd=REPOSITORY, env=self.environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def start(self, *command: str, log: Path) -> psutil.Popen:
        with log.open("ab") as stream:
            return psutil.Popen(
                self._argv(command), cwd=REPOSITORY, env=self.environment, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
            )

    def digests(self) -> dict[str, str]:
        """asset[partition] -> digest of everything published."""
        return {f"{asset}[{partition}]/{recipe}": artifact.digest for asset, partition, recipe, artifact in self.store.artifacts()}

    def jobs(self) -> list[psutil.Process]:
        """Processes of this lab's jobs that are alive: supervisors and workers."""
        return [process for process in psutil.process_iter() if _mentions(process, str(self.home))]

    @staticmethod
    def _argv(command: tuple[str, ...]) -> list[str]:
        tool = Path(sys.executable).with_name(command[0])
        return [str(tool), *command[1:]]


def write_texts(folder: Path, seed: int = 7) -> Path:
    """Forty short documents with known relations: exact copies, near copies, and different ones."""
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    originals = [" ".join(rng.choice(WORDS) + str(rng.randrange(90)) for _ in range(160)) for _ in range(30)]
    texts = {f"story-{index:02d}.txt": text for index, text in enumerate(originals)}
    texts |= {f"copy-{index:02d}.txt": originals[index] for index in range(4)}
    texts |= {f"near-{index:02d}.txt": originals[10 + index].rsplit(" ", 2)[0] for index in range(6)}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


def _mentions(process: psutil.Process, needle: str) -> bool:
    try:
        if "infra." not in " ".join(process.cmdline()):
            return False
        return any(needle in part for part in process.cmdline()) or _value(process.environ(), "HOME_OF_TEST") == needle
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return False


def _value(environment: Mapping[str, str], name: str) -> str | None:
    return environment.get(name)
