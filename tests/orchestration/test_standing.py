from pathlib import Path

from infra.artifacts.lease import claim
from infra.artifacts.store import ArtifactStore
from infra.dispatch.job import Attempt, Resources, write_spec
from orchestration.standing import standing
from tests.infra.dispatch.builders import job_of
from tests.infra.dispatch.programs import CountConfig, count


def test_a_store_that_nobody_used_is_idle(tmp_path: Path):
    assert standing(ArtifactStore(str(tmp_path))) == "none yet; in use: nothing"


def test_what_goes_on_holds_what_it_asked_for_until_its_end_is_recorded(tmp_path: Path):
    store = ArtifactStore(str(tmp_path))
    job = job_of(store, count, CountConfig(), resources=Resources(device="h100x16", band="batch"))
    lease = claim(job.address, uid="d" * 16, after=0)
    write_spec(job, Attempt(1, "d" * 16))
    assert standing(store) == "1 going on; in use: h100x16 batch (1 attempt, 2 hosts, 16 chips)"
    lease.end("application_error")
    assert standing(store) == "1 failed; in use: nothing"
