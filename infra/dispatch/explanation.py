"""An exception as an ending and one sentence."""

import errno
import re
import traceback
from collections.abc import Iterator

from infra.artifacts.lease import LeaseLost
from infra.dispatch.endings import Ending, PoisonedDeviceError
from infra.dispatch.rendezvous import RendezvousFailed
from infra.storage.errors import PermanentStorageError, TransientStorageError, as_storage_error
from infra.supervise.pulse import Failure

TAIL_LINES = 20
# Statuses of XLA that the loss of a peer never has: the program asked for what can't be done.
_PROGRAMS_OWN = {"INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "OUT_OF_RANGE", "UNIMPLEMENTED", "PERMISSION_DENIED"}
_STORAGE_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


class InvalidJobError(ValueError):
    """The job can't be run as it was described; the message is the whole explanation."""


def explain(error: BaseException, *, ranks: int = 1) -> Failure:
    """Classify by type, errno and status along the chain of causes, never by words in a message.

    Args:
        ranks: of the gang that the program ran in. A connection or a collective that breaks in a gang shows the loss of a peer.
    """
    for found in _chain(error):
        if (explained := _ending_of(found, ranks)) is not None:
            ending, what = explained
            return Failure(ending.value, what, _tail(error))
    return Failure(Ending.APPLICATION_ERROR.value, _sentence(error), _tail(error))


def _ending_of(error: BaseException, ranks: int) -> tuple[Ending, str] | None:
    match error:
        case RendezvousFailed():
            return Ending.RENDEZVOUS_FAILED, _sentence(error)
        case InvalidJobError():
            return Ending.INVALID_CONFIG, str(error)
        case LeaseLost():
            return Ending.LEASE_LOST, str(error)
        case PoisonedDeviceError():
            return Ending.POISONED_DEVICE, _sentence(error)
        case MemoryError():
            return Ending.OUT_OF_MEMORY, "the program asked for more memory than there is"
        case PermanentStorageError():
            return Ending.STORAGE_REFUSED, str(error)
        case TransientStorageError():
            return Ending.STORAGE_AWAY, str(error)
        case OSError() if error.errno in _STORAGE_ERRNOS:
            return Ending.STORAGE_REFUSED, str(as_storage_error("write", str(error.filename or "the artifact's files"), error))
        case ConnectionError() | EOFError() if ranks > 1:
            return Ending.PEER_LOST, _sentence(error)
        case _ if type(error).__name__ == "JaxRuntimeError":  # by name: only model/ imports jax
            return _ending_of_xla(error, ranks)
        case _:
            return None


def _ending_of_xla(error: BaseException, ranks: int) -> tuple[Ending, str] | None:
    """XLA has one type for everything, and a status at the head of each message."""
    status = re.match(r"[A-Z_]+(?=:)", str(error))
    if status is not None and status[0] == "RESOURCE_EXHAUSTED":
        return Ending.OUT_OF_MEMORY, _sentence(error)
    if ranks > 1 and (status is None or status[0] not in _PROGRAMS_OWN):
        return Ending.PEER_LOST, _sentence(error)
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what caused it, outermost first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _sentence(error: BaseException) -> str:
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _tail(error: BaseException) -> tuple[str, ...]:
    return tuple("".join(traceback.format_exception(error)).splitlines()[-TAIL_LINES:])
