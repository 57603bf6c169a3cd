"""The local folder in which a supervisor notes who it is and how its attempt ended. Standard library alone."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.supervise.processes import Group, start_of

STARTED_NAME = "supervisor.json"
ENDED_NAME = "ended.json"


@dataclass(frozen=True)
class Started:
    """The processes of an attempt, findable after everybody who knew them is dead."""

    pid: int
    started: float
    workers: tuple[Group, ...]

    @classmethod
    def here(cls, workers: Iterable[Group]) -> "Started":
        """This process as supervisor of `workers`."""
        return cls(os.getpid(), start_of(os.getpid()), tuple(workers))


def write_started(state: Path, started: Started) -> None:
    write_whole(state / STARTED_NAME, json.dumps(asdict(started)))


def read_started(state: Path) -> Started | None:
    """Who supervises, or None before there is anybody."""
    try:
        told = json.loads((state / STARTED_NAME).read_text())
    except FileNotFoundError:
        return None
    return Started(told["pid"], told["started"], tuple(Group(**group) for group in told["workers"]))


def write_whole(path: Path, text: str) -> None:
    """Write a small local file in one rename: a reader sees all of it or none."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
