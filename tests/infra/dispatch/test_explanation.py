import errno

import pytest

from infra.artifacts.lease import LeaseLost
from infra.dispatch.endings import Ending, PoisonedDeviceError
from infra.dispatch.explanation import TAIL_LINES, InvalidJobError, explain
from infra.dispatch.rendezvous import RendezvousFailed
from infra.storage.errors import PermanentStorageError, TransientStorageError


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (ValueError("no"), Ending.APPLICATION_ERROR),
        (InvalidJobError("no"), Ending.INVALID_CONFIG),
        (LeaseLost("no"), Ending.LEASE_LOST),
        (PoisonedDeviceError("no"), Ending.POISONED_DEVICE),
        (MemoryError(), Ending.OUT_OF_MEMORY),
        (PermanentStorageError("no"), Ending.STORAGE_REFUSED),
        (TransientStorageError("no"), Ending.STORAGE_AWAY),
        (OSError(errno.ENOSPC, "No space left on device"), Ending.STORAGE_REFUSED),
        (OSError(errno.EROFS, "Read-only file system", "/data/x"), Ending.STORAGE_REFUSED),
        (FileNotFoundError(errno.ENOENT, "No such file", "/data/x"), Ending.APPLICATION_ERROR),
        (ConnectionResetError("peer"), Ending.APPLICATION_ERROR),
    ],
)
def test_an_exception_is_classified_by_its_type(error: BaseException, ending: Ending):
    assert explain(raised(error)).ending == ending


class JaxRuntimeError(RuntimeError):
    """Known by its name alone: infra/ may not import jax."""


@pytest.mark.parametrize(
    ("error", "in_a_gang", "alone"),
    [
        (ConnectionResetError("peer"), Ending.PEER_LOST, Ending.APPLICATION_ERROR),
        (EOFError(), Ending.PEER_LOST, Ending.APPLICATION_ERROR),
        (JaxRuntimeError("UNKNOWN: Gloo all-reduce failed: connection closed by peer"), Ending.PEER_LOST, Ending.APPLICATION_ERROR),
        (JaxRuntimeError("without a status"), Ending.PEER_LOST, Ending.APPLICATION_ERROR),
        (JaxRuntimeError("INVALID_ARGUMENT: shapes differ"), Ending.APPLICATION_ERROR, Ending.APPLICATION_ERROR),
        (JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory"), Ending.OUT_OF_MEMORY, Ending.OUT_OF_MEMORY),
        (RendezvousFailed("no coordinator"), Ending.RENDEZVOUS_FAILED, Ending.RENDEZVOUS_FAILED),
        (ValueError("no"), Ending.APPLICATION_ERROR, Ending.APPLICATION_ERROR),
    ],
)
def test_what_breaks_between_ranks_shows_the_loss_of_a_peer(error: Exception, in_a_gang: Ending, alone: Ending):
    assert explain(raised(error), ranks=2).ending == in_a_gang
    assert explain(raised(error)).ending == alone


def test_the_cause_below_an_exception_decides():
    found = explain(raised(RuntimeError("can't write the shard"), raised(OSError(errno.ENOSPC, "No space left on device", "/data/x"))))
    assert (found.ending, found.what) == (
        "storage_refused",
        "can't write /data/x: the disk is full; free space there or choose another root",
    )


def test_a_message_of_many_lines_becomes_one_sentence_and_the_tail_is_bounded():
    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        raise ValueError("first\n  second")

    try:
        deep(5)
    except ValueError as error:
        found = explain(error)
    assert found.what == "ValueError: first second"
    assert len(found.tail) <= TAIL_LINES
    assert found.tail[-2:] == ("ValueError: first", "  second")
