"""What lost attempts wrote, once it can't be of use to anybody."""

from infra.artifacts.lease import attempts
from infra.artifacts.store import ATTEMPT_PREFIX, SCRATCH_FOLDER, ArtifactStore
from infra.dispatch.plan import all_are_over
from infra.storage.objects import list_names


def remove_leftovers(store: ArtifactStore, address: str) -> tuple[str, ...]:
    """Remove the folders of lost attempts and the scratch space of a published artifact, unless one may still be writing.

    An attempt that is claimed after publication finds the artifact and writes nothing.

    Returns:
        Names of the folders removed; one listing tells that there are none.

    Raises:
        StorageError: it costs space, and the next look comes back to it.
    """
    names = list_names(address)
    if SCRATCH_FOLDER not in names and sum(name.startswith(ATTEMPT_PREFIX) for name in names) < 2:
        return ()
    return store.sweep(address) if all_are_over(attempts(address)) else ()
