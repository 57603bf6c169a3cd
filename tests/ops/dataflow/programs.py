"""`python -m tests.ops.dataflow.programs PROGRAM DIRECTORY`: one attempt that dies behind the first shard that it commits.

The programs that are held to the primitives' promises, and small inputs that have every kind of row.
"""

import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from infra.artifacts.artifact import Artifact
from ops.config import NormalizeConfig, StoreConfig
from ops.dataflow.commits import Attempt, Commit
from ops.dataflow.config import Execution
from ops.extract.documents import DOCUMENT_SCHEMA
from ops.normalize import normalize
from ops.shards import shard_name
from ops.store import build_store
from tests.builders import artifact_of, run_program
from tests.ops.stores import Document, store_inputs

FILES = 3
NORMALIZED_BYTES = 14_000  # of a shard: three are filled


def run(name: str, directory: Path, execution: Execution = Execution(), order: int = 0) -> Artifact:  # noqa: B008 - frozen
    """Run a program on its input, whose rows and files arrive in an order that `order` decides."""
    if name == "normalize":
        config = NormalizeConfig(shard_bytes=NORMALIZED_BYTES, held_out_rate=0.2, execution=execution)
        return run_program(normalize, config, directory, extracted=extracted(directory / f"in-{order}", order))
    inputs: dict[str, Any] = store_inputs(directory / "in", documents(), shards=2)
    return run_program(build_store, StoreConfig(min_quality=0.3, execution=execution), directory, **inputs)


def extracted(directory: Path, order: int) -> Artifact:
    """Ordinary texts, exact copies with other and with equal provenance, blanks, long whitespace, and pages that move with it."""
    rows: list[tuple[Any, ...]] = []
    for n in range(160):
        text = f"{n} tides and harbours " * (1 + n % 9) + (" " * 300 + "end") * (n % 11 == 0)
        pages = [0, text.index("tides"), len(text) - 1] if n % 22 == 0 else None
        rows += [(text, f"http://h/{n}/{copy}", "text/html", "x/1", "warc/a", n, 10, pages) for copy in range(1 + n % 3)]
    rows += [("\u3000 ", f"blank {n}", "text/plain", "text/1", None, None, None, None) for n in range(4)]
    rows += [("one and the same", "file", "text/plain", "text/1", None, None, None, None)] * 5
    chance = random.Random(order)
    chance.shuffle(rows)
    parts = [rows[index :: FILES - 1] for index in range(FILES - 1)] + [[]]
    chance.shuffle(parts)
    tables = {shard_name(index, FILES): _table(part) for index, part in enumerate(parts)}
    return artifact_of(directory, tables, {"text_bytes": sum(len(row[0].encode()) for row in rows)})


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    arrays = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(DOCUMENT_SCHEMA)]
    return pa.Table.from_arrays(arrays, schema=DOCUMENT_SCHEMA)


def documents() -> dict[str, list[Document]]:
    kinds = [
        Document(f"{n}", tuple(range(2, 2 + n % 40)), n % 9 == 0, n % 7 == 0, n % 5 == 0, n % 4 == 0, score=n % 10 / 10, quality=n % 5)
        for n in range(120)
    ]
    return {"a": kinds[:70], "b": kinds[50:]}


def _dying(commit: Any, journal: Path) -> Any:
    def die(attempt: Attempt, rows: int, tally: dict[str, int]) -> Commit:
        done: Commit = commit(attempt, rows, tally)
        with journal.open("a") as stream:
            stream.write(f"{done.name}\n")
        os.kill(os.getpid(), signal.SIGKILL)
        return done

    return die


if __name__ == "__main__":
    directory = Path(sys.argv[2])
    Attempt.commit = _dying(Attempt.commit, directory / "journal")  # type: ignore[method-assign]
    print(run(sys.argv[1], directory).digest)
