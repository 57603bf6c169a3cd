"""A small lineage of its own: real stages, real jobs on the local backend, in a folder of the test."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pytest

import assets.stage
from assets.factory import Factory
from assets.lineage import STAGES, each, same
from assets.profile import Profile, load_profile
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact
from infra.artifacts.program import load_program
from infra.dispatch.budgets import Budgets
from orchestration.walk import QUIET
from tests.infra.dispatch.builders import QUICK
from tests.infra.dispatch.programs import CountConfig, FaultConfig, JoinConfig
from tests.journeys.lab import PROFILE

PROGRAMS = "tests.infra.dispatch.programs"
PARTITIONS = dg.StaticPartitionsDefinition(["a", "b"])


@dataclass
class SmallLineage:
    """`single` and `counted[a|b]` count; `joined` joins them; `faulty` raises, and so does the partition that is `broken`.

    `single` waits for `open` in the gate, if there is one.
    """

    root: Path
    instance: dg.DagsterInstance
    numbers: int = 6
    gate: str | None = None
    broken: str | None = None
    factory: Factory = field(init=False)
    defs: dg.Definitions = field(init=False)

    def __post_init__(self) -> None:
        self.factory = Factory(load_profile(str(PROFILE)).model_copy(update={"timeouts": QUICK, "budgets": Budgets()}))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.BetaWarning)  # backfill policies; the definitions' loader is as tolerant
            stages = self._assets()
        self.defs = dg.Definitions(assets=stages, resources={"factory": self.factory}, executor=dg.in_process_executor)

    def materialize(self, *keys: str, partition: str | None = None, tags: dict[str, str] | None = None) -> dg.ExecuteInProcessResult:
        """One run, as a fresh process would do it."""
        self.factory.forget()
        job = self.defs.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=self.instance,
            asset_selection=[dg.AssetKey(key) for key in keys],
            partition_key=partition,
            raise_on_error=False,
            run_config=QUIET,
            tags=tags,
        )

    def published(self) -> list[str]:
        return sorted(asset if partition is None else f"{asset}[{partition}]" for asset, partition, _, _ in self.factory.store.artifacts())

    def _assets(self) -> list[dg.AssetsDefinition]:
        def single(artifact: Artifact) -> Report:
            """Numbers."""
            return Report(
                metadata={"numbers": artifact.stats["numbers"]},
                checks={"is_short": artifact.stats["numbers"] < 10},
                warnings={"is_tiny": artifact.stats["numbers"] < 5},
            )

        def counted(artifact: Artifact) -> Report:
            """Numbers per partition."""
            return Report()

        def joined(artifact: Artifact) -> Report:
            """All numbers."""
            return Report()

        def faulty(artifact: Artifact) -> Report:
            """Never there."""
            raise AssertionError("nothing was published")

        count, shown = f"{PROGRAMS}:count", {"group": "small", "kinds": {"text"}}

        def counting(profile: Profile, key: str | None) -> CountConfig:
            if key == self.broken:
                return CountConfig(numbers=8, gate=str(self.root / "nowhere"))
            return CountConfig(numbers=4 if key == "b" else 3)

        checks = {"is_short": "Fewer than ten.", "is_tiny": "Fewer than five."}
        return [
            stage(program=count, config=lambda *_: CountConfig(numbers=self.numbers, gate=self.gate), checks=checks, **shown)(single),  # type: ignore[arg-type]
            stage(program=count, config=counting, partitions=PARTITIONS, **shown)(counted),  # type: ignore[arg-type]
            stage(
                program=f"{PROGRAMS}:join",
                config=lambda *_: JoinConfig(),
                inputs={"one": same("single"), "many": each("counted")},
                **shown,  # type: ignore[arg-type]
            )(joined),
            stage(program=f"{PROGRAMS}:fail", config=lambda *_: FaultConfig(fault="raise"), **shown)(faulty),  # type: ignore[arg-type]
        ]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallLineage]:
    for name, value in {"HOME_OF_TEST": tmp_path, "TEXTS": tmp_path, "JAX_CACHE": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(assets.stage, "program_version", lambda path: load_program(path).version)
    real = dict(STAGES)
    STAGES.clear()
    try:
        with dg.DagsterInstance.local_temp(str(tmp_path), overrides={"telemetry": {"enabled": False}}) as instance:
            yield SmallLineage(tmp_path, instance)
    finally:
        STAGES.clear()
        STAGES.update(real)
