"""A gang's end: what each host's supervisor recorded becomes the one end of the attempt.

In the attempt's directory, in shared storage:

    hosts/00000.json   the end of host 0, as its supervisor saw it; created once
    fallen.json        the first host that fell, and why; created once, so whoever falls first is the cause
    saved.json         that a checkpoint was committed

A rank's loss makes its peers fail, each in its own way. So the cause is whoever fell first, and never a symptom.
"""

from collections.abc import Mapping
from contextlib import suppress

from pydantic import BaseModel, ConfigDict

from infra.dispatch.endings import End, Ending, severity
from infra.storage.errors import StorageError
from infra.storage.objects import create_exclusive, list_names, read_or_none


class Fallen(BaseModel):
    """The first host of a gang that fell."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: int
    end: End


def record_end(directory: str, host: int, end: End) -> None:
    """Write a host's end. The first record stays.

    Raises:
        StorageError: it was not written.
    """
    create_exclusive(f"{directory}/hosts/{host:05d}.json", end.model_dump_json().encode())


def read_ends(directory: str, hosts: int) -> dict[int, End]:
    """The ends that the hosts recorded, by host. A host that died without a word is missing."""
    recorded = set(list_names(f"{directory}/hosts"))
    found = {host: read_end(directory, host) for host in range(hosts) if f"{host:05d}.json" in recorded}
    return {host: end for host, end in found.items() if end is not None}


def read_end(directory: str, host: int) -> End | None:
    """The end that one host recorded, or None."""
    stored = read_or_none(f"{directory}/hosts/{host:05d}.json")
    return None if stored is None else End.model_validate_json(stored)


def declare_fallen(directory: str, host: int, end: End) -> bool:
    """Say that this host fell; True if it is the first.

    Raises:
        StorageError: it was not said.
    """
    return create_exclusive(f"{directory}/fallen.json", Fallen(host=host, end=end).model_dump_json().encode())


def read_fallen(directory: str) -> Fallen | None:
    """The first host that fell, or None while none has."""
    stored = read_or_none(f"{directory}/fallen.json")
    return None if stored is None else Fallen.model_validate_json(stored)


def mark_saved(directory: str) -> None:
    """Note that this attempt committed a checkpoint, for the case that its supervisor dies without a word.

    Storage that refuses costs a budget's unit at the worst, never the job.
    """
    with suppress(StorageError):
        create_exclusive(f"{directory}/saved.json", b"{}")


def has_saved(directory: str) -> bool:
    return read_or_none(f"{directory}/saved.json") is not None


def gang_end(ends: Mapping[int, End], hosts: int, fallen: Fallen | None, engine: End | None) -> End:
    """The end of an attempt of which no process is left.

    Args:
        ends: by host, as recorded. An engine that knows the exit code of a host without a record may add
            `End(ending=ending_of(code), ...)` for it.
        hosts: supervisors in the gang.
        fallen: who fell first.
        engine: the engine's own positive word: preempted, node lost, cancelled, timed out, out of memory, never
            started. None if it only knows that the attempt is over.

    Host 0's success is the attempt's: it is recorded for a published artifact alone. Any other host's success is
    provisional. Steps, checkpoints and observations are those of all recorded hosts.
    """
    if 0 in ends and ends[0].ending is Ending.SUCCEEDED:
        return _with_measures(ends[0], ends)
    return _with_measures(engine or _without_record(ends, hosts) or _cause(ends, fallen), ends)


def _without_record(ends: Mapping[int, End], hosts: int) -> End | None:
    missing = [host for host in range(hosts) if host not in ends]
    if not missing:
        return None
    if not ends:
        return End(ending=Ending.NEVER_STARTED, what=f"{_hosts(missing)} left no record; its supervisor never ran, or had no storage")
    return End(ending=Ending.NODE_LOST, what=f"{_hosts(missing)} of {hosts} ended without a record")


def _cause(ends: Mapping[int, End], fallen: Fallen | None) -> End:
    """Whoever fell first, unless another host ended in a way that is less likely an answer to that.

    A rank that raises because its peer crashed may be faster to say so than the supervisor of the peer.
    """
    failures = {host: end for host, end in ends.items() if end.ending is not Ending.SUCCEEDED}
    host = min(failures, key=lambda host: (*severity(failures[host].ending), host))
    if fallen is not None and severity(fallen.end.ending) <= severity(failures[host].ending):
        return _of_host(fallen.host, fallen.end, ends)
    return _of_host(host, failures[host], ends)


def _of_host(host: int, end: End, ends: Mapping[int, End]) -> End:
    return end if len(ends) == 1 else end.model_copy(update={"what": f"host {host}: {end.what}"})


def _with_measures(end: End, ends: Mapping[int, End]) -> End:
    found = [recorded.observations for recorded in ends.values()]

    def each(name: str) -> list[float]:
        return [observations[name] for observations in found if name in observations]

    merged = {"wall_s": max(each("wall_s"), default=None), "cpu_s": sum(each("cpu_s")) or None}
    merged["max_rss_bytes"] = max(each("max_rss_bytes"), default=None)
    return end.model_copy(
        update={
            "steps": min((recorded.steps for recorded in ends.values()), default=0),
            "saved": max((recorded.saved for recorded in ends.values()), default=0),
            "observations": {name: value for name, value in merged.items() if value is not None},
        }
    )


def _hosts(hosts: list[int]) -> str:
    named = ", ".join(map(str, hosts[:8])) + (" ..." if len(hosts) > 8 else "")
    return f"host {named}" if len(hosts) == 1 else f"hosts {named}"
