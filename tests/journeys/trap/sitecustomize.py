"""Imported by every Python that has this folder on its path: kills the process at one chosen write, once.

    SEAWAY_TRAP="worker create .artifact.json before /folder/for/marks"

The first word is the victim: `dispatcher`, `supervisor`, `worker`, or `worker1` for rank 1 of a gang. Then come the kind
of write (`create`, `replace`, `local`), the end of the name that is written, the moment, and a folder in which the
victim leaves its mark, so that there is one death a story.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROLES = {"infra.supervise": "supervisor", "infra.dispatch.worker": "worker", "tests.infra.dispatch.run_job": "dispatcher"}


def role() -> str | None:
    found = next((name for module, name in ROLES.items() if module in sys.orig_argv), None)
    rank = os.environ.get("SEAWAY_RANK", "0")
    return f"{found}{rank}" if found == "worker" and rank != "0" else found


def trapped[**P, R](write: Callable[P, R], name: str, moment: str, marks: Path) -> Callable[P, R]:
    def writing(*arguments: Any, **options: Any) -> R:
        if not str(arguments[0]).endswith(name) or not _first(marks):
            return write(*arguments, **options)
        if moment == "after":
            write(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    return writing  # type: ignore[return-value]


def _first(marks: Path) -> bool:
    try:
        (marks / "died").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def set_trap(victim: str, kind: str, name: str, moment: str, marks: str) -> None:
    if role() != victim:
        return
    if kind == "local":
        from infra.supervise import state as module

        attribute = "write_whole"
    else:
        from infra.storage import objects as module  # type: ignore[no-redef]

        attribute = {"create": "create_exclusive", "replace": "replace"}[kind]
    setattr(module, attribute, trapped(getattr(module, attribute), name, moment, Path(marks)))


if "SEAWAY_TRAP" in os.environ:
    set_trap(*os.environ["SEAWAY_TRAP"].split(" "))
