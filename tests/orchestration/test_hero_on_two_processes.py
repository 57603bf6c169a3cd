"""The lineage's own `hero`, materialized by Dagster on a profile whose hero runs as two processes."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import assets.stage
from assets.factory import Factory
from assets.lineage import STAGES
from assets.profile import load_profile
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact
from infra.artifacts.lease import attempts
from infra.artifacts.program import load_program
from model.tracker import read_rows
from model.train import train
from orchestration.walk import QUIET
from tests.builders import run_program
from tests.journeys.lab import PROFILE
from tests.model.corpus import corpus
from tests.orchestration.planted import PlantConfig

pytestmark = pytest.mark.faults

ON_TWO = f"""
extends: {PROFILE}
programs:
  hero:
    schedule: {{schedule_steps: 12, warmup_steps: 2}}
    log_every_steps: 1
    eval_every_steps: null
stages:
  hero: {{resources: {{device: cpux2, cpus: 1}}}}
"""


@pytest.fixture
def data(tmp_path: Path) -> dict[str, Artifact]:
    store, mixture = corpus(tmp_path)
    return {"store": store, "mixture": mixture}


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Factory:
    assert pytestconfig.cache is not None
    for name, value in {"HOME_OF_TEST": tmp_path, "TEXTS": tmp_path, "JAX_CACHE": pytestconfig.cache.mkdir("jax")}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(assets.stage, "program_version", lambda path: load_program(path).version)
    (tmp_path / "two.yaml").write_text(ON_TWO)
    return Factory(load_profile(str(tmp_path / "two.yaml")))


@pytest.fixture
def lineage(data: dict[str, Artifact]) -> Iterator[list[dg.AssetsDefinition]]:
    """The lineage's hero, and before it what the test has made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # as the loader of the definitions does
        from assets.training import hero
    real = dict(STAGES)
    STAGES.clear()
    STAGES["hero"] = real["hero"]
    try:
        yield [*(_planted(name, data.get(name, data["store"])) for name in ("store", "mixture", "prediction")), hero]
    finally:
        STAGES.clear()
        STAGES.update(real)


def _planted(name: str, artifact: Artifact) -> dg.AssetsDefinition:
    def shown(published: Artifact) -> Report:
        """Planted."""
        return Report()

    shown.__name__ = name
    program = "tests.orchestration.planted:plant"
    return stage(program=program, config=lambda *_: PlantConfig(url=artifact.url), group="planted", kinds={"text"})(shown)


def rows_of(artifact: Artifact) -> list[dict[str, Any]]:
    with artifact.open("metrics.jsonl") as stream:
        return read_rows(stream)


def test_a_hero_of_two_processes_loses_what_that_of_one_loses(
    factory: Factory, lineage: list[dg.AssetsDefinition], data: dict[str, Artifact], tmp_path: Path
) -> None:
    definitions = dg.Definitions(assets=lineage, resources={"factory": factory}, executor=dg.in_process_executor)
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides={"telemetry": {"enabled": False}}) as instance:
        job = definitions.resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(instance=instance, run_config=QUIET)
        assert result.success
        assert {check.check_name: check.passed for check in result.get_asset_check_evaluations()} == {"loss_is_finite": True}
    together = factory.resolve("hero", None).artifact
    assert together is not None
    assert [record.ended for record in attempts(together.url)] == ["succeeded"]
    alone = run_program(train, factory.profile.programs.hero, tmp_path / "alone", **data)
    ours, theirs = rows_of(together), rows_of(alone)
    assert len(ours) == len(theirs) == 12
    assert max(abs(a["loss"] - b["loss"]) for a, b in zip(ours, theirs, strict=True)) < 2e-6
    assert [a["loss"] for a in ours] != [b["loss"] for b in theirs], "two processes did add in another order"
    assert set(together.names) == set(alone.names)
