"""One candidate, one subprocess; rounds interleaved, so that what else the machine does meets all sides alike."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.bench.stages import OURS, Stage

ROOT = Path(__file__).resolve().parents[2]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS", "ARROW_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
TIMEOUT_S = 3_600


@dataclass(frozen=True)
class Measurement:
    """One run of one candidate.

    Attributes:
        cpu_s: user and system, of it and its children, for all documents; `start_cpu_s` before that: imports, models, compiling.
    """

    documents: int
    bytes: int
    cpu_s: float
    start_cpu_s: float
    peak_bytes: int
    quality: Mapping[str, float]

    @property
    def documents_per_s(self) -> float:
        return self.documents / self.cpu_s

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.cpu_s


class CandidateError(RuntimeError):
    """A candidate did not give a measurement; the text says why."""


Found = dict[tuple[str, str], list[Measurement]]
"""(stage key, candidate) to its measurements, one a round."""


def measure(
    stages: Sequence[Stage], folder: Path, rounds: int, peer_python: Path | None, tell: Callable[[str], None]
) -> tuple[Found, dict[tuple[str, str], str]]:
    """Run every candidate of every stage once a round.

    Args:
        peer_python: the interpreter of the peers' environment; None measures Seaway alone.

    Returns:
        Measurements, and of candidates that failed the reason.
    """
    found: Found = {}
    failed: dict[tuple[str, str], str] = {}
    for number in range(rounds):
        for stage in stages:
            sides = [*(stage.peers if peer_python else ()), OURS]
            for candidate in sides if number % 2 == 0 else reversed(sides):
                if (stage.key, candidate) in failed:
                    continue
                tell(f"round {number + 1} of {rounds}: {stage.title}, {candidate}")
                try:
                    found.setdefault((stage.key, candidate), []).append(run(command_of(candidate, stage, folder, peer_python)))
                except CandidateError as error:
                    failed[stage.key, candidate] = str(error)
                    tell(f"{stage.title}, {candidate}: {error}")
    return found, failed


def command_of(candidate: str, stage: Stage, folder: Path, peer_python: Path | None) -> list[str]:
    if candidate == OURS:
        return [sys.executable, "-m", "ops.bench.ours", stage.key, str(folder)]
    return [str(peer_python), "-m", "ops.bench.peers", candidate, stage.key, str(folder)]


def run(command: Sequence[str]) -> Measurement:
    """Run one candidate and read its measurement from its last line.

    Raises:
        CandidateError: it failed, printed something else, or took more than `TIMEOUT_S`.
    """
    environment = {**os.environ, **ONE_THREAD, "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, cwd=ROOT, check=False)
    except subprocess.TimeoutExpired as error:
        raise CandidateError(f"no result within {TIMEOUT_S} s") from error
    if done.returncode:
        last = done.stderr.strip().splitlines()
        raise CandidateError(f"exit code {done.returncode}: {last[-1] if last else 'no message'}")
    return measurement_of(done.stdout)


def measurement_of(output: str) -> Measurement:
    """The measurement in a candidate's output.

    Raises:
        CandidateError: there is none.
    """
    lines = output.strip().splitlines()
    try:
        fields: dict[str, Any] = json.loads(lines[-1])
        return Measurement(**fields)
    except (IndexError, ValueError, TypeError) as error:
        raise CandidateError(f"its last line is no measurement: {lines[-1] if lines else '(nothing printed)'}") from error
