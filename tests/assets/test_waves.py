"""The lineage is cut into the fewest runs, and every run's upstream is in an earlier run or in itself."""

from assets.lineage import CHOSEN, Edge, Stage, each, same
from orchestration.waves import waves

SOURCES = ("a", "b")


def stage(key: str, partitions: tuple[str, ...] = (), after: tuple[str, ...] = (), **inputs: Edge) -> Stage:
    return Stage(key, f"ops.x:{key}", "1", inputs, after, partitions, lambda profile, partition: None, "host")  # type: ignore[arg-type,return-value]


def test_partitioned_stages_that_follow_each_other_share_a_run_per_partition():
    planned = waves([stage("raw", SOURCES), stage("text", SOURCES, raw=same("raw"))])
    assert [(wave.partition, wave.assets) for wave in planned] == [("a", ("raw", "text")), ("b", ("raw", "text"))]


def test_a_stage_that_needs_all_partitions_waits_for_every_run_of_them():
    planned = waves([stage("raw", SOURCES), stage("all", raw=each("raw")), stage("back", SOURCES, all=same("all"), raw=same("raw"))])
    assert [(wave.partition, wave.assets) for wave in planned] == [
        ("a", ("raw",)),
        ("b", ("raw",)),
        (None, ("all",)),
        ("a", ("back",)),
        ("b", ("back",)),
    ]


def test_a_partitioned_stage_that_needs_all_partitions_of_another_is_not_in_its_run():
    planned = waves([stage("raw", SOURCES), stage("global", SOURCES, raw=each("raw"))])
    assert [wave.assets for wave in planned] == [("raw",), ("raw",), ("global",), ("global",)]


def test_a_chosen_input_waits_for_every_asset_that_a_key_may_name():
    planned = waves([stage("hero"), stage("cooldown", parent=same("hero")), stage("score", ("cooldown", "hero"), checkpoint=CHOSEN)])
    assert [wave.assets for wave in planned] == [("hero", "cooldown"), ("score",), ("score",)]


def test_what_must_be_published_before_is_in_an_earlier_run_or_in_the_same_one():
    planned = waves([stage("prediction"), stage("hero", after=("prediction",))])
    assert [wave.assets for wave in planned] == [("prediction", "hero")]
