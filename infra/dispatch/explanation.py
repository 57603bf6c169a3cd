"""An exception as an ending and one sentence."""

import errno
import traceback
from collections.abc import Iterator

from infra.artifacts.lease import LeaseLost
from infra.dispatch.endings import Ending, PoisonedDeviceError
from infra.storage.errors import PermanentStorageError, TransientStorageError, as_storage_error
from infra.supervise.pulse import Failure

TAIL_LINES = 20
_STORAGE_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


class InvalidJobError(ValueError):
    """The job can't be run as it was described; the message is the whole explanation."""


def explain(error: BaseException) -> Failure:
    """Classify by type and errno along the chain of causes, never by words in a message."""
    for found in _chain(error):
        if (explained := _ending_of(found)) is not None:
            ending, what = explained
            return Failure(ending.value, what, _tail(error))
    return Failure(Ending.APPLICATION_ERROR.value, _sentence(error), _tail(error))


def _ending_of(error: BaseException) -> tuple[Ending, str] | None:
    match error:
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
        case _:
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
