"""When an automated asset is rebuilt: an input's bytes changed, and every input is there for good."""

from collections.abc import Iterator

import dagster as dg
import pytest

from assets.stage import DATA_CHANGED


@dg.asset(check_specs=[dg.AssetCheckSpec("is_sound", asset="text", blocking=True)])
def text() -> dg.MaterializeResult: ...  # type: ignore[empty-body,type-arg]


@dg.asset(deps=[text], automation_condition=DATA_CHANGED)
def labels() -> None: ...


@dg.asset(deps=[text, labels], automation_condition=DATA_CHANGED)
def store() -> None: ...


DEFS = dg.Definitions(assets=[text, labels, store])


class Daemon:
    """Ticks, and what runs would have reported between them."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self._cursor = None

    def tick(self) -> set[str]:
        """Keys of the assets that the tick requests."""
        result = dg.evaluate_automation_conditions(
            DEFS, instance=self.instance, cursor=self._cursor, asset_selection=dg.AssetSelection.all()
        )
        self._cursor = result.cursor
        return {
            item.key.to_user_string() for item in result.results if isinstance(item.key, dg.AssetKey) and result.get_num_requested(item.key)
        }

    def publish(self, asset: str, version: str, sound: bool = True) -> None:
        self.instance.report_runless_asset_event(dg.AssetMaterialization(asset, tags={"dagster/data_version": version}))
        if asset == "text":
            check = dg.AssetCheckEvaluation(asset_key=dg.AssetKey("text"), check_name="is_sound", passed=sound, metadata={}, blocking=True)
            self.instance.report_runless_asset_event(check)

    def start(self, asset: str) -> str:
        """A run of the asset that goes on."""
        job = DEFS.resolve_implicit_global_asset_job_def()
        run = self.instance.create_run_for_job(job, asset_selection={dg.AssetKey(asset)}, status=dg.DagsterRunStatus.STARTED)
        return run.run_id

    def end(self, run_id: str) -> None:
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        self.instance.report_run_failed(run)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """Everything is built once, and the daemon has seen it."""
    with dg.DagsterInstance.ephemeral() as instance:
        daemon = Daemon(instance)
        for asset in ("text", "labels", "store"):
            daemon.publish(asset, "1")
        assert daemon.tick() == set()
        yield daemon


def test_equal_bytes_rebuild_nothing(daemon: Daemon):
    daemon.publish("text", "1")
    assert daemon.tick() == set()


def test_changed_bytes_rebuild_what_is_below_layer_by_layer(daemon: Daemon):
    daemon.publish("text", "2")
    assert daemon.tick() == {"labels"}, "the store waits for labels that are about to be made"
    daemon.publish("labels", "2")
    assert daemon.tick() == {"store"}
    assert daemon.tick() == set()


def test_a_change_is_remembered_while_another_input_is_on_its_way(daemon: Daemon):
    run = daemon.start("labels")
    daemon.publish("text", "2")
    assert daemon.tick() == set()
    daemon.end(run)
    assert daemon.tick() == {"labels"}


def test_a_change_that_comes_while_the_asset_itself_runs_is_remembered(daemon: Daemon):
    run = daemon.start("store")
    daemon.publish("labels", "2")
    assert daemon.tick() == set()
    daemon.end(run)
    assert daemon.tick() == {"store"}


def test_nothing_is_built_on_an_input_whose_blocking_check_failed(daemon: Daemon):
    daemon.publish("text", "2", sound=False)
    assert daemon.tick() == set()
    daemon.publish("text", "3", sound=True)
    assert daemon.tick() == {"labels"}
