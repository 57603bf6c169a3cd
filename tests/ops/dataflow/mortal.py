"""`python -m tests.ops.dataflow.mortal DIRECTORY PROGRAM ...`: programs killed behind every commit, and begun again until they end.

Each attempt is a fork of this process, which has imported everything and started no thread, and dies by SIGKILL: the first one
with a shard that is written and not committed, the others behind the first commit that they make, and one with half of the files
that a program writes past the dataflow. What became of each program is a line of JSON (`Outcome`).
"""

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from infra.artifacts.writer import Writer
from ops.dataflow.commits import Attempt, Commit
from tests.ops.dataflow.programs import STAGES, run

MOST_ATTEMPTS = 30


@dataclass(frozen=True)
class Outcome:
    """Exit codes of the attempts, every shard that was committed in order of time, and what the last attempt published.

    Attributes:
        was_torn: an attempt died with a shard written and not committed.
        was_half_written: an attempt died between two files that are no shards of the dataflow.
    """

    codes: list[int]
    committed: list[str]
    was_torn: bool
    was_half_written: bool
    digest: str
    stats: dict[str, Any]


def killed(name: str, directory: Path) -> Outcome:
    directory.mkdir(parents=True)
    forked(lambda: STAGES[name].given(directory / "in-0", 0))  # what it reads is made once, and by nobody who dies
    codes: list[int] = []
    while (not codes or codes[-1] == -signal.SIGKILL) and len(codes) < MOST_ATTEMPTS:
        codes.append(forked(lambda: attempt(name, directory)))
        shutil.rmtree(directory / "attempt", ignore_errors=True)  # every attempt of a job writes to a directory of its own
    journal, published = (directory / file for file in ("journal", "published"))
    digest, stats = json.loads(published.read_text()) if published.exists() else ("", {})
    committed = journal.read_text().splitlines() if journal.exists() else []
    return Outcome(codes, committed, (directory / "torn").exists(), (directory / "half written").exists(), digest, stats)


def attempt(name: str, directory: Path) -> None:
    Attempt.commit = dying(Attempt.commit, directory)  # type: ignore[method-assign]
    Writer.open = dying_between_files(Writer.open, directory)  # type: ignore[assignment, method-assign]
    artifact = run(name, directory)
    (directory / "published").write_text(json.dumps([artifact.digest, artifact.stats]))


def dying(commit: Callable[..., Commit], directory: Path) -> Callable[..., Commit]:
    def die(attempt: Attempt, rows: int, tally: dict[str, int]) -> Commit:
        die_once(directory / "torn")
        done = commit(attempt, rows, tally)
        with (directory / "journal").open("a") as journal:
            journal.write(f"{attempt.ledger.url.rpartition('/')[2]} {attempt.shard.index}\n")
        os.kill(os.getpid(), signal.SIGKILL)
        return done

    return die


def dying_between_files(
    open_file: Callable[[Writer, str], AbstractContextManager[IO[bytes]]], directory: Path
) -> Callable[[Writer, str], AbstractContextManager[IO[bytes]]]:
    def die(out: Writer, name: str) -> AbstractContextManager[IO[bytes]]:
        if out.url == str(directory / "attempt") and out.files:
            die_once(directory / "half written")
        return open_file(out, name)

    return die


def die_once(marker: Path) -> None:
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def forked(act: Callable[[], object]) -> int:
    """The exit code of a child that does this; negative: the signal that ended it."""
    assert len(os.listdir("/proc/self/task")) == 1, "a thread was started, which a fork would not have"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    for name in sys.argv[2:]:
        print(json.dumps(asdict(killed(name, Path(sys.argv[1]) / name))), flush=True)
