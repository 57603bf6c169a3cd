import re
from pathlib import Path

from infra.artifacts.store import ArtifactStore
from infra.dispatch.environment import JAX_ON_CPU, SOURCES, environment
from infra.dispatch.job import Attempt, Job, Resources, is_cancelled, job_id, mark_cancelled, read_spec, write_spec
from tests.infra.dispatch.builders import job_of
from tests.infra.dispatch.programs import CountConfig, count


def a_job(root: Path, **changes: object) -> Job:
    return job_of(ArtifactStore(str(root)), count, CountConfig(), **changes)


def test_a_job_id_is_the_same_each_time_and_differs_with_asset_partition_recipe_attempt_and_store(tmp_path: Path):
    job = a_job(tmp_path)
    others = [
        job_id(a_job(tmp_path, asset="other"), 1),
        job_id(a_job(tmp_path, partition="p"), 1),
        job_id(job_of(ArtifactStore(str(tmp_path)), count, CountConfig(numbers=11)), 1),
        job_id(job, 2),
        job_id(a_job(tmp_path / "elsewhere"), 1),
    ]
    assert job_id(job, 1) == job_id(a_job(tmp_path), 1)
    assert len({job_id(job, 1), *others}) == 6


def test_a_job_id_is_a_legal_name_for_every_engine(tmp_path: Path):
    for asset, partition in (("Raw_Docs", "https://Example.com/ä?x"), ("a" * 200, "b" * 200), ("日本", None), ("-", "--")):
        name = job_id(a_job(tmp_path, asset=asset, partition=partition), 1_000_000)
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name), name
        assert len(name) <= 52


def test_resources_and_timeouts_move_no_job_id(tmp_path: Path):
    assert job_id(a_job(tmp_path, resources=Resources(cpus=64, device="h100x8")), 1) == job_id(a_job(tmp_path), 1)


def test_the_first_spec_of_an_attempt_stays(tmp_path: Path):
    job = a_job(tmp_path)
    url = write_spec(job, Attempt(3, "a" * 16))
    assert write_spec(job.model_copy(update={"resources": Resources(cpus=7)}), Attempt(3, "b" * 16)) == url
    spec = read_spec(url)
    assert (spec.job, spec.attempt, spec.job_id) == (job, Attempt(3, "a" * 16), job_id(job, 3))


def test_a_cancel_mark_belongs_to_one_attempt(tmp_path: Path):
    job = a_job(tmp_path)
    mark_cancelled(job.address, 2)
    mark_cancelled(job.address, 2)
    assert is_cancelled(job.address, 2)
    assert not is_cancelled(job.address, 3)


def test_the_environment_is_inherited_then_fixed_then_the_jobs_own():
    found = environment(Resources(cpus=3, env={"POLARS_MAX_THREADS": "1", **JAX_ON_CPU}), {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "64"})
    assert found["JAX_PLATFORMS"] == "cpu"
    assert found["PYTHONHASHSEED"] == "0"
    assert (found["OMP_NUM_THREADS"], found["NUMBA_NUM_THREADS"], found["POLARS_MAX_THREADS"]) == ("3", "3", "1")
    assert found["MALLOC_ARENA_MAX"] == "1"
    assert "MALLOC_ARENA_MAX" not in environment(Resources(), {})


def test_a_job_runs_the_code_of_its_dispatcher_from_any_directory():
    assert environment(Resources(), {"PYTHONPATH": f"/mine:{SOURCES}"})["PYTHONPATH"] == f"{SOURCES}:/mine"
