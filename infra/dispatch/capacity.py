"""What is in use: the sum of what unfinished attempts asked for, read from storage. No counter, so none can leak.

An attempt holds what its job requested from its claim until its end is recorded, however it ends. An engine's
dispatcher records that only once nothing of it runs; what everybody forgot is recorded by `infra.dispatch.reconcile`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from infra.artifacts.lease import attempts
from infra.dispatch.job import Band, Resources, Spec, attempt_directory, read_spec


@dataclass(frozen=True)
class Usage:
    """Of one kind of device in one band. `cpus` are threads over all processes."""

    attempts: int = 0
    hosts: int = 0
    chips: int = 0
    cpus: int = 0

    def plus(self, resources: Resources) -> "Usage":
        """With one more attempt that holds these resources."""
        target = resources.target
        cpus = resources.cpus * target.processes
        return Usage(self.attempts + 1, self.hosts + target.hosts, self.chips + target.chips, self.cpus + cpus)


def usage(held: Iterable[Resources]) -> dict[tuple[str, Band], Usage]:
    """Sum by (device, band); an idle fleet gives an empty table."""
    table: dict[tuple[str, Band], Usage] = {}
    for resources in held:
        key = (resources.device, resources.band)
        table[key] = table.get(key, Usage()).plus(resources)
    return table


def unfinished(addresses: Iterable[str]) -> Iterator[Spec]:
    """The specs of attempts whose end nobody recorded. One that is claimed and not yet submitted asked for nothing so far."""
    for address in addresses:
        for record in attempts(address):
            if record.ended is None and (spec := _spec(address, record.token)) is not None:
                yield spec


def _spec(address: str, token: int) -> Spec | None:
    try:
        return read_spec(f"{attempt_directory(address, token)}/job.json")
    except FileNotFoundError:
        return None
