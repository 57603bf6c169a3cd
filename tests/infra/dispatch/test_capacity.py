from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from infra.artifacts.lease import Lease, claim
from infra.artifacts.store import ArtifactStore
from infra.dispatch.capacity import Usage, unfinished, usage
from infra.dispatch.endings import Ending
from infra.dispatch.job import Attempt, Job, Resources, write_spec
from tests.infra.dispatch.builders import job_of
from tests.infra.dispatch.programs import CountConfig, count

RESOURCES = st.builds(
    Resources,
    device=st.sampled_from(["cpu", "h100x16", "v4-32"]),
    cpus=st.integers(1, 8),
    band=st.sampled_from(["production", "interactive", "batch"]),
)


def submitted(store: ArtifactStore, **changes: Any) -> tuple[Job, Lease]:
    job = job_of(store, count, CountConfig(numbers=len(changes)), **changes)
    lease = claim(job.address, uid="c" * 16, after=0)
    write_spec(job, Attempt(1, "c" * 16))
    return job, lease


@given(st.lists(RESOURCES))
def test_usage_is_the_sum_of_requests(requests: list[Resources]):
    table = usage(requests)
    assert sum(used.attempts for used in table.values()) == len(requests)
    assert sum(used.chips for used in table.values()) == sum(request.target.chips for request in requests)
    assert sum(used.cpus for used in table.values()) == sum(request.cpus * request.target.processes for request in requests)
    assert set(table) == {(request.device, request.band) for request in requests}


def test_an_idle_fleet_uses_nothing(store: ArtifactStore):
    assert usage([]) == {}
    assert list(unfinished([store.address("counted", None, "0" * 16)])) == []


def test_a_gang_holds_all_its_hosts_until_its_end_is_recorded_however_it_ended(store: ArtifactStore):
    for ending in Ending:
        resources = Resources(device="h100x16", cpus=2, band="batch")
        job, lease = submitted(store, asset=f"gang-{ending}", resources=resources)
        held = usage(spec.job.resources for spec in unfinished([job.address]))
        assert held == {("h100x16", "batch"): Usage(attempts=1, hosts=2, chips=16, cpus=32)}
        lease.end(ending.value)
        assert list(unfinished([job.address])) == []


def test_an_attempt_that_was_claimed_and_not_submitted_asked_for_nothing_so_far(store: ArtifactStore):
    job = job_of(store, count, CountConfig())
    claim(job.address, uid="c" * 16, after=0)
    assert list(unfinished([job.address])) == []
