"""Reading ahead: the loader's batches, in time, and nothing left of the thread."""

import threading
from typing import Any

import numpy as np
import pytest

from infra.artifacts.artifact import Artifact
from model.config import BatchStage, LoaderConfig
from model.loader import MixtureLoader
from model.read_ahead import ReadAhead


@pytest.fixture
def loader(data: dict[str, Artifact]) -> MixtureLoader:
    return MixtureLoader(
        **data, config=LoaderConfig(batch_sequences=4, sequence_tokens=16, batch_stages=(BatchStage(start_step=3, batch_sequences=8),))
    )


class Watched(MixtureLoader):
    """A loader that says when it has read which step, and fails at one."""

    def __init__(self, *, broken: int | None = None, **inputs: Any) -> None:
        super().__init__(**inputs, config=LoaderConfig(batch_sequences=4, sequence_tokens=16))
        self.has_read = [threading.Event() for _ in range(8)]
        self._broken = broken

    def batch(self, step: int, rows: slice = slice(None)) -> Any:
        if step == self._broken:
            raise OSError("the disk is away")
        found = super().batch(step, rows)
        self.has_read[step].set()
        return found


def test_batches_are_the_loaders_own_whatever_is_asked_in_which_order(loader: MixtureLoader) -> None:
    asked = [(0, slice(None)), (1, slice(None)), (1, slice(0, 2)), (2, slice(0, 2)), (3, slice(0, 4)), (0, slice(None))]
    with ReadAhead(loader, steps=6) as ahead:
        for step, rows in asked:
            for ours, theirs in zip(ahead.batch(step, rows), loader.batch(step, rows), strict=True):
                np.testing.assert_array_equal(ours, theirs)


def test_the_next_step_is_read_before_anybody_asks_for_it_and_none_behind_the_last(data: dict[str, Artifact]) -> None:
    watched = Watched(**data)
    with ReadAhead(watched, steps=3) as ahead:
        for step in (0, 1):
            ahead.batch(step)
            assert watched.has_read[step + 1].wait(60)
        ahead.batch(2)
    assert not watched.has_read[3].is_set()


def test_a_step_that_cant_be_read_fails_where_it_is_asked_for(data: dict[str, Artifact]) -> None:
    with ReadAhead(Watched(broken=1, **data), steps=3) as ahead:
        ahead.batch(0)
        with pytest.raises(OSError, match="the disk is away"):
            ahead.batch(1)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("batches")]
