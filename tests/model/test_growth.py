"""A batch that grows on the way: what is read, at which rate, and what a branch takes over."""

import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infra.artifacts.artifact import Artifact
from model.branch import branched
from model.config import BatchStage, BranchConfig, LoaderConfig, OptimizerConfig, ScheduleConfig
from model.growth import batch_growth, growth_of, rate_share
from model.loader import MixtureLoader
from model.run import read_run, resolve
from model.schedule import learning_rate
from model.tracker import read_rows
from model.train import train
from tests.builders import run_program
from tests.model.cells import finished_run, tiny_config

LOADER = LoaderConfig(batch_sequences=4, sequence_tokens=32, batch_stages=(BatchStage(start_step=3, batch_sequences=8),))
CONFIG = tiny_config(
    loader=LOADER,
    schedule=ScheduleConfig(schedule_steps=20, warmup_steps=2),
    optimizer=OptimizerConfig(adam_beta2=0.99, adam_eps=1e-8),
    stop_after_steps=5,
    log_every_steps=1,
    eval_every_steps=None,
)


def test_rates_and_tokens_grow_with_the_batch() -> None:
    run = resolve(CONFIG)
    assert [run.tokens_at(step) for step in range(5)] == [128, 128, 128, 256, 256]
    assert [run.tokens_after(step) for step in range(6)] == [0, 128, 256, 384, 640, 896]
    assert run.flops_after(5) == pytest.approx(7 / 3 * run.flops_after(3))
    assert [batch_growth(run, step) for step in range(5)] == [1, 1, 1, 2, 2]
    assert rate_share(run, 2) == learning_rate(run.schedule, 2)
    assert rate_share(run, 4) == learning_rate(run.schedule, 4) * math.sqrt(2)


def test_the_optimizer_counts_the_same_growth() -> None:
    growth = growth_of(resolve(CONFIG))
    assert growth is not None
    np.testing.assert_array_equal(jax.vmap(growth)(jnp.arange(6)), [1, 1, 1, 2, 2, 2])
    assert growth_of(resolve(tiny_config())) is None


def test_grown_batches_go_on_in_the_order_of_the_data(data: dict[str, Artifact]) -> None:
    grown = MixtureLoader(**data, config=LOADER)
    plain = MixtureLoader(**data, config=LOADER.model_copy(update={"batch_stages": ()}))
    ours = np.concatenate([grown.batch(step).tokens for step in range(5)])
    theirs = np.concatenate([plain.batch(step).tokens for step in range(7)])
    assert [len(grown.batch(step).tokens) for step in (2, 3)] == [4, 8]
    np.testing.assert_array_equal(ours, theirs)


def test_a_run_reads_grown_batches_and_a_branch_joins_its_rate(data: dict[str, Artifact], tmp_path: Path) -> None:
    parent = run_program(train, CONFIG, tmp_path, **data)
    with parent.open("metrics.jsonl") as stream:
        rows = read_rows(stream)
    assert [row["tokens"] for row in rows] == [128, 256, 384, 640, 896]
    assert rows[3]["learning_rate"] > rows[2]["learning_rate"]
    run = branched(BranchConfig(cooldown_steps=4), read_run(parent), parent.digest)
    assert rate_share(run, 5) == rate_share(read_run(parent).run, 5)
    assert run.schedule.floor_share == 0.05 * math.sqrt(2)
    assert (run.loader.batch_sequences, run.loader.batch_stages) == (8, ())
    assert run.optimizer.adam_beta2 == pytest.approx(0.99**2)
    assert run.optimizer.adam_eps == pytest.approx(1e-8 / math.sqrt(2))


def test_a_context_extension_keeps_the_grown_tokens_of_a_step(tmp_path: Path) -> None:
    finished = read_run(finished_run(tmp_path, resolve(CONFIG), {}))
    run = branched(BranchConfig(cooldown_steps=4, sequence_tokens=128), finished, "0" * 64)
    assert (run.loader.sequence_tokens, run.loader.batch_sequences) == (128, 2)
    assert json.loads(run.model_dump_json())["model"]["qk_scale"] == pytest.approx(1.3 * (0.1 * math.log(4) + 1))
