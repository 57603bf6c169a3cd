"""A lineage that can't be is refused when it is put in order."""

from collections.abc import Iterator

import pytest

from assets.lineage import STAGES, Edge, Stage, each, in_order, same


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    before = dict(STAGES)
    STAGES.clear()
    yield
    STAGES.clear()
    STAGES.update(before)


def declare(key: str, partitions: tuple[str, ...] = (), after: tuple[str, ...] = (), **inputs: Edge) -> None:
    STAGES[key] = Stage(key, f"ops.x:{key}", "1", inputs, after, partitions, lambda profile, partition: None, "host")  # type: ignore[arg-type,return-value]


def test_upstream_comes_first_whatever_the_order_of_declaration():
    declare("all", text=each("text"))
    declare("text", ("a", "b"), raw=same("raw"))
    declare("raw", ("a", "b"))
    assert [stage.key for stage in in_order()] == ["raw", "text", "all"]


def test_an_asset_that_does_not_exist_is_named():
    declare("text", raw=same("raw"))
    with pytest.raises(ValueError, match="assets that don't exist: raw"):
        in_order()


def test_a_circle_is_named():
    declare("one", two=same("two"))
    declare("two", after=("one",))
    with pytest.raises(ValueError, match="circle through one, two"):
        in_order()


def test_the_same_partition_of_something_partitioned_otherwise_is_refused():
    declare("raw", ("a", "b"))
    declare("all", raw=same("raw"))
    with pytest.raises(ValueError, match=r"all: input raw is same\('raw'\), which has other partitions; use each\('raw'\)"):
        in_order()
