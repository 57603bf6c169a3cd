"""What a supervisor asks of storage about its attempt, and what it takes for true while storage is away."""

import sys
import time

from infra.artifacts.manifest import MANIFEST_NAME
from infra.dispatch import job
from infra.dispatch.job import Spec
from infra.storage.errors import StorageError
from infra.storage.objects import read_or_none


def is_cancelled(spec: Spec) -> bool:
    """Whether somebody cancelled the attempt; False while that can't be seen."""
    try:
        return job.is_cancelled(spec.job.address, spec.number)
    except StorageError as error:
        say(f"can't see whether the job was cancelled: {error}")
        return False


def is_published(spec: Spec, *, patience_s: float = 0.0) -> bool:
    """Whether the artifact is published; asked for `patience_s` while storage is away, and False after that.

    To call a published artifact lost would be wrong, so would be hanging for ever.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return read_or_none(f"{spec.job.address}/{MANIFEST_NAME}") is not None
        except StorageError as error:
            say(f"can't see whether the artifact is published: {error}")
            if time.monotonic() >= deadline:
                return False
            time.sleep(1.0)


def say(text: str) -> None:
    """Print one line to the attempt's log."""
    print(f"supervisor: {text}", file=sys.stderr, flush=True)
