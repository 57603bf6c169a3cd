from pathlib import Path

import pytest

from infra.artifacts.store import ArtifactStore
from infra.dispatch.job import Attempt, Resources, write_spec
from infra.supervise.placement import Placement
from tests.infra.dispatch.builders import job_of
from tests.infra.dispatch.programs import CountConfig, count

URL = "s3://bucket/x/.attempts/000001/job.json"


def placed(device: str, host: int = 0, hosts: int | None = None) -> Placement:
    return Placement.of(URL, host, hosts, {"SEAWAY_DEVICE": device})


def test_rank_r_of_host_h_is_h_times_processes_per_host_plus_the_local_rank():
    second = placed("h100x16", host=1)
    told = [second.environment(local_rank, {}) for local_rank in range(second.local_ranks)]
    assert [found["SEAWAY_RANK"] for found in told] == [str(rank) for rank in range(8, 16)]
    assert {found["SEAWAY_RANKS"] for found in told} == {"16"}
    assert [found["SEAWAY_LOCAL_RANK"] for found in told] == [str(rank) for rank in range(8)]
    assert {found["SEAWAY_ATTEMPT_DIRECTORY"] for found in told} == {"s3://bucket/x/.attempts/000001"}


def test_one_supervisor_may_stand_for_all_hosts():
    found = placed("cpux4", hosts=1)
    assert (found.local_ranks, found.ranks, found.hosts_here) == (4, 4, 4)


def test_each_process_of_a_host_sees_one_gpu_of_those_the_engine_gave():
    host = placed("h100x8")
    assert [host.environment(rank, {})["CUDA_VISIBLE_DEVICES"] for rank in range(8)] == list("01234567")
    assert host.environment(1, {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"})["CUDA_VISIBLE_DEVICES"] == "GPU-b"


@pytest.mark.parametrize("device", ["cpux2", "v5p-32", "h100x1"])
def test_a_process_that_has_its_host_for_itself_is_told_of_no_gpu(device: str):
    assert "CUDA_VISIBLE_DEVICES" not in placed(device).environment(0, {})


def test_without_the_environment_the_spec_tells(tmp_path: Path):
    job = job_of(ArtifactStore(str(tmp_path)), count, CountConfig(), resources=Resources(device="cpux3"))
    assert Placement.of(write_spec(job, Attempt(1, "a" * 16)), 2, None, {}).ranks == 3


@pytest.mark.parametrize(("host", "hosts"), [(2, None), (-1, None), (0, 3)])
def test_what_can_not_be_spread_so_is_refused(host: int, hosts: int | None):
    with pytest.raises(ValueError, match="cpux2 has 2 processes: there is no host"):
        placed("cpux2", host, hosts)
