"""Runs to kill: imports everything once, then forks one process per life and says how it ended.

    python -m tests.model.nursery STORE MIXTURE

Each line on standard input is a `Life` as JSON; the answer is one line: the wait status' exit code, negative for a signal.
What a life does is told by audit hooks, that is just before it happens: no code under test is patched. A *moment* is such an
event under the life's folder, its random names taken out, or a finished step.
"""

import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from model.config import CheckpointPolicy
from model.train import train
from tests.builders import publish
from tests.model.cells import tiny_config

CONFIG = tiny_config(stop_after_steps=11, eval_every_steps=None, checkpoints=CheckpointPolicy(every_s=1e9, every_steps=2))
MOMENTS = "moments.json"
RANDOM = re.compile(r"-[0-9a-f]{8}(?=/|$)|\.[0-9a-f]{16}(?=\.tmp$)")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
VERBS = {"os.mkdir": "make", "os.rename": "rename", "os.remove": "remove", "os.rmdir": "remove", "shutil.rmtree": "clear"}


class Life(BaseModel):
    """One attempt of a run in `directory`; it dies `delay_s` after `death` begins, or lives to the end."""

    directory: str
    death: str | None = None
    delay_s: float = 0.0


class Observer:
    """Names the moments of this process, and kills it at the one that is fatal."""

    def __init__(self, life: Life) -> None:
        self.moments: list[str] = []
        self._life, self._cleared = life, ""
        self._killer: threading.Thread | None = None

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            verb = "write" if flags & WRITES else "sync" if mode is None else None
        else:
            path, verb = (arguments or ("",))[0], VERBS.get(event)
        if verb is not None and (name := self._name(path)) is not None:
            self._cleared = name if event == "shutil.rmtree" else self._cleared
            self.reach(f"{verb} {name}")

    def reach(self, moment: str) -> None:
        self.moments.append(moment)
        if moment != self._life.death:
            return
        if not self._life.delay_s:
            os.kill(os.getpid(), signal.SIGKILL)
        self._killer = threading.Thread(target=self._kill_soon)
        self._killer.start()

    def outlive(self) -> None:
        """Whoever is to die does, however fast it was."""
        if self._killer is not None:
            self._killer.join()

    def _kill_soon(self) -> None:
        time.sleep(self._life.delay_s)
        os.kill(os.getpid(), signal.SIGKILL)

    def _name(self, path: Any) -> str | None:
        """A path inside the life's folder; below a folder that is being cleared, names come alone."""
        text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if text and os.sep not in text and self._cleared:
            return f"{self._cleared}/{RANDOM.sub('', text)}"
        inside = text.startswith(self._life.directory + os.sep)
        return RANDOM.sub("", text.removeprefix(self._life.directory + os.sep)) if inside else None


def live(life: Life, store: Artifact, mixture: Artifact) -> None:
    observer = Observer(life)
    sys.addaudithook(observer.audit)
    directory = Path(life.directory)

    def progress(done: int, total: int | None, unit: str, **measures: float) -> None:
        if measures:
            observer.reach(f"step {done} done")

    out = Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"), progress=progress)
    stats = train(CONFIG, store=store, mixture=mixture, out=out)
    observer.outlive()
    moments = json.dumps(observer.moments)
    publish(directory, out, stats.model_dump(mode="json"))
    (directory / MOMENTS).write_text(moments)


def main() -> None:
    store, mixture = (Artifact.open_at(url) for url in sys.argv[1:])
    for line in sys.stdin:
        life = Life.model_validate_json(line)
        child = os.fork()  # the parent never computes, so JAX has no thread yet
        if child == 0:
            try:
                live(life, store, mixture)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
