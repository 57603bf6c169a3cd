"""Bad input to a run fails before anything is compiled, in a sentence that names the field."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infra.artifacts.artifact import Artifact
from model.branch import branch
from model.config import BranchConfig, TrainConfig
from model.loop import checkpoints_of
from model.run import data_of, resolve
from model.train import train
from tests.builders import run_program
from tests.model.cells import finished_run, tiny_config
from tests.model.learner import variant

COMPILED = "/jax/core/compile/backend_compile_duration"

Data = dict[str, Artifact]


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """What JAX compiles during a test."""
    events: list[str] = []

    def listen(event: str, seconds: float, **_: Any) -> None:
        if event == COMPILED:
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


def heads(data: Data, folder: Path) -> None:
    variant(heads=6, kv_heads=4)


def experts(data: Data, folder: Path) -> None:
    tiny_config(mesh={"expert": 3})


def window(data: Data, folder: Path) -> None:
    tiny_config(model=variant(window_tokens=48))


def flag(data: Data, folder: Path) -> None:
    TrainConfig.model_validate(tiny_config().model_dump() | {"learning_rate": 0.1})


def architecture(data: Data, folder: Path) -> None:
    """A checkpoint of a wider model lies where this run keeps its own; attention is chosen by compiling probes."""
    wider = resolve(tiny_config(model=variant(width=64)))
    arrays = {"parameters/embedding": np.zeros((50, 64), np.float32)}
    checkpoints_of(wider, data_of(data["store"], data["mixture"]), str(folder / "scratch")).save(3, arrays, b"{}")
    run_program(train, tiny_config(model=variant(kernels={"attention_backend": "probe"})), folder, **data)


def tokenizer(data: Data, folder: Path) -> None:
    parent = finished_run(folder / "parent", resolve(tiny_config()), {}, tokenizer="u" * 64)
    run_program(branch, BranchConfig(cooldown_steps=2), folder, parent=parent, **data)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (heads, r"heads = 6 is no multiple of kv_heads = 4"),
        (experts, r"mesh\.expert = 3 doesn't divide experts = 4"),
        (window, r"window_tokens = 48 is larger than sequence_tokens = 32"),
        (flag, r"learning_rate\n  Extra inputs are not permitted"),
        (architecture, r"this is run .*model\.width: 64 -> 32"),
        (tokenizer, r"store: it belongs to tokenizer tttttttttttt, the checkpoint learnt from uuuuuuuuuuuu"),
    ],
    ids=[
        "heads not divisible",
        "experts not divisible by the expert axis",
        "window larger than sequence",
        "unknown flag",
        "checkpoint of another architecture",
        "cache of another tokenizer",
    ],
)
def test_a_mistake_is_named_before_anything_is_compiled(
    mistake: Callable[[Data, Path], None], sentence: str, data: Data, compiled: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=sentence):
        mistake(data, tmp_path)
    assert compiled == []


def test_what_is_compiled_is_noticed(compiled: list[str]) -> None:
    jax.jit(lambda x: x * 3.25)(jnp.ones(7))
    assert compiled
