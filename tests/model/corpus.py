"""A corpus that can be learnt in twenty steps: each source counts upwards by its own stride, with a little noise."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from infra.artifacts.artifact import Artifact
from ops.config import MixtureConfig
from ops.mixture import mix
from tests.builders import run_program
from tests.ops.stores import Document, store_of

VOCAB = 50
STRIDES: Mapping[str, int] = {"code": 1, "prose": 3}


@cache
def documents(source: str, count: int = 60) -> tuple[Document, ...]:
    """Every fifth document is held out."""
    rng = np.random.default_rng(STRIDES[source])
    return tuple(
        Document(f"{source}-{number}", _count_up(rng, STRIDES[source], int(rng.integers(8, 60))), held_out=number % 5 == 0)
        for number in range(count)
    )


def corpus(directory: Path) -> tuple[Artifact, Artifact]:
    """A store of both sources and a mixture of it."""
    store = store_of(directory / "data", {source: documents(source) for source in STRIDES}, vocab_size=VOCAB)
    config = MixtureConfig(block_sequences=8, sequence_tokens=32, training_tokens=16 * 4 * 32, epoch_cap=None)
    return store, run_program(mix, config, directory / "mixture", store=store)


def _count_up(rng: np.random.Generator, stride: int, length: int) -> tuple[int, ...]:
    start, usable = int(rng.integers(0, VOCAB - 2)), VOCAB - 2
    steps = np.where(rng.random(length) < 0.05, rng.integers(1, usable, length), stride)
    return tuple(int(2 + (start + jump) % usable) for jump in np.cumsum(steps))
