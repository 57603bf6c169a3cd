"""How the jobs of a store stand and what they hold, counted from its records at each look: no counter, so none can leak."""

from collections import Counter

from infra.artifacts.lease import attempts
from infra.artifacts.store import ArtifactStore
from infra.dispatch.capacity import Usage, unfinished, usage
from infra.dispatch.states import JobState, job_state


def standing(store: ArtifactStore) -> str:
    """`12 published, 1 failed, 1 going on; in use: h100x16 batch (1 attempt, 2 hosts, 16 chips)`."""
    addresses = [store.address(*node) for node in store.addresses()]
    states = Counter(job_state(attempts(address), is_published=store.open_at(address) is not None) for address in addresses)
    told = ", ".join(f"{states[state]} {state.value.replace('_', ' ')}" for state in reversed(JobState) if states[state])
    held = usage(spec.job.resources for spec in unfinished(addresses))
    in_use = ", ".join(f"{device} {band} ({_words(used)})" for (device, band), used in sorted(held.items()))
    return f"{told or 'none yet'}; in use: {in_use or 'nothing'}"


def _words(used: Usage) -> str:
    counted = {"attempt": used.attempts, "host": used.hosts, "chip": used.chips}
    return ", ".join(f"{number} {noun}{'' if number == 1 else 's'}" for noun, number in counted.items() if number)
