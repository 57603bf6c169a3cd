"""A branch goes on where its parent stood, under other settings."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infra.artifacts.artifact import Artifact
from model.branch import branch, branched
from model.config import BranchConfig, ScheduleConfig
from model.finish import MODEL, OPTIMIZER, read_model, read_state
from model.layout import one_device
from model.loader import MixtureLoader
from model.parameters import Params
from model.run import Origin, kept_folder, read_run, resolve
from model.schedule import learning_rate
from model.state import TrainState, same
from model.step import make_step, start_state, to_device
from model.tracker import read_rows
from model.train import train
from ops.cache import LEDGER
from tests.builders import run_program
from tests.model.cells import finished_run, tiny_config

CONFIG = BranchConfig(cooldown_steps=6, sequence_tokens=64, floor_share=0.0, log_every_steps=1, eval_every_steps=None)


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Artifact]) -> Artifact:
    return run_program(train, tiny_config(), tmp_path_factory.mktemp("parent"), **data)


@pytest.fixture(scope="module")
def cooled(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Artifact], parent: Artifact) -> Artifact:
    return run_program(branch, CONFIG, tmp_path_factory.mktemp("branch"), parent=parent, **data)


def test_the_learning_rate_joins_the_parents_next_one_and_decays_to_the_floor(cooled: Artifact, parent: Artifact) -> None:
    with cooled.open("metrics.jsonl") as stream:
        rates = [row["learning_rate"] for row in read_rows(stream)]
    assert rates[0] == learning_rate(read_run(parent).run.schedule, 16)
    assert rates[-1] == 0.0
    assert np.diff(rates, n=2) == pytest.approx(np.zeros(4), abs=1e-12)


def test_steps_tokens_and_flops_count_on_from_the_parent(cooled: Artifact, parent: Artifact) -> None:
    before, after = read_run(parent).state, read_run(cooled)
    with cooled.open("metrics.jsonl") as stream:
        rows = read_rows(stream)
    assert [row["step"] for row in rows] == [17, 18, 19, 20, 21, 22]
    assert after.state.tokens == before.tokens + 6 * 128
    assert after.state.flops > before.flops
    assert after.run.origin is not None
    assert (after.run.origin.step, after.run.origin.tokens, after.run.origin.parent) == (16, before.tokens, parent.digest)


def test_the_context_grows_at_equal_tokens_per_step_and_sharpens_attention(cooled: Artifact, parent: Artifact) -> None:
    before, after = read_run(parent).run, read_run(cooled).run
    assert (after.loader.sequence_tokens, after.loader.batch_sequences) == (64, 2)
    assert after.tokens_at(16) == before.tokens_at(15) == 128
    assert after.model.qk_scale == pytest.approx(before.model.qk_scale * (0.1 * np.log(2) + 1))
    assert after.model.model_copy(update={"qk_scale": before.model.qk_scale}) == before.model


def test_the_published_extension_from_8k_to_64k_scales_attention_as_published(tmp_path: Path) -> None:
    config = tiny_config()
    long = config.model_copy(update={"loader": config.loader.model_copy(update={"sequence_tokens": 8192, "batch_sequences": 8})})
    finished = read_run(finished_run(tmp_path, resolve(long), {}))
    run = branched(BranchConfig(cooldown_steps=5, sequence_tokens=65536), finished, "0" * 64)
    assert run.model.qk_scale == pytest.approx(1.57, abs=0.005)
    assert run.loader.batch_sequences == 1


def test_the_first_update_starts_from_the_parents_whole_state(parent: Artifact, data: dict[str, Artifact], tmp_path: Path) -> None:
    one = BranchConfig(cooldown_steps=1, floor_share=0.01)
    run = branched(one, read_run(parent), parent.digest)
    moved, _ = read_model(run_program(branch, one, tmp_path, parent=parent, **data), run)
    state, batch = (
        read_state(parent, read_run(parent).run, one_device(read_run(parent).run.model)),
        MixtureLoader(**data, config=run.loader).batch(0),
    )
    forgetful = TrainState(state.parameters, start_state(run).optimizer, state.router_bias)
    assert not equal(make_step(run)(copied(forgetful), to_device(batch))[0].parameters, moved)
    assert equal(make_step(run)(copied(state), to_device(batch))[0].parameters, moved)


def copied(state: TrainState) -> TrainState:
    """A state whose arrays may be donated without taking another's."""
    copies: TrainState = jax.tree.map(jnp.copy, state)
    return copies


def equal(left: Params, right: Params) -> bool:
    return all(same(a, b) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))


def test_a_branch_leaves_a_step_that_its_parent_kept_as_if_the_parent_had_ended_there(data: dict[str, Artifact], tmp_path: Path) -> None:
    config = tiny_config(eval_every_steps=None, stop_after_steps=6, log_every_steps=1)
    keeping = run_program(train, config.model_copy(update={"keep_steps": (3,)}), tmp_path / "keeping", **data)
    ended = run_program(train, config.model_copy(update={"stop_after_steps": 3}), tmp_path / "ended", **data)
    left = BranchConfig(cooldown_steps=2, eval_every_steps=None)
    at_three = run_program(branch, left.model_copy(update={"parent_step": 3}), tmp_path / "at three", parent=keeping, **data)
    after = run_program(branch, left, tmp_path / "after", parent=ended, **data)
    for name in (MODEL, OPTIMIZER, "metrics.jsonl"):
        assert content(at_three, name) == content(after, name)
    assert rows_of(keeping)[: len(rows_of(ended))] == rows_of(ended), "a branch leaves no mark on the trunk"
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert content(keeping, f"{kept_folder(3)}/{name}") == content(ended, f"checkpoint/{name}")
    assert read_run(at_three).run.origin == Origin(parent=keeping.digest, step=3, tokens=3 * 128, flops=read_run(ended).state.flops)
    with pytest.raises(ValueError, match=r"parent_step = 4: .* has its state after 3, 6 updates alone"):
        run_program(branch, left.model_copy(update={"parent_step": 4}), tmp_path / "never", parent=keeping, **data)


def rows_of(artifact: Artifact) -> list[Any]:
    with artifact.open("metrics.jsonl") as stream:
        return read_rows(stream)


def content(artifact: Artifact, name: str) -> bytes:
    with artifact.open(name) as stream:
        return stream.read()


def test_a_store_of_another_tokenizer_is_refused_before_anything_is_compiled(
    parent: Artifact, data: dict[str, Artifact], tmp_path: Path
) -> None:
    ledger = data["store"].read_json(LEDGER) | {"tokenizer_digest": "u" * 64}
    shutil.copytree(data["store"].url, tmp_path / "store")
    store = Artifact.open_at(str(tmp_path / "store"))
    (Path(store.url) / store.manifest.directory / LEDGER).write_text(json.dumps(ledger))
    with pytest.raises(ValueError, match=r"store: it belongs to tokenizer uuuuuuuuuuuu, the checkpoint learnt from tttttttttttt"):
        run_program(branch, CONFIG, tmp_path / "branch", parent=parent, store=store, mixture=data["mixture"])


def test_an_equal_branch_gives_equal_bytes(cooled: Artifact, parent: Artifact, data: dict[str, Artifact], tmp_path: Path) -> None:
    assert run_program(branch, CONFIG, tmp_path, parent=parent, **data).digest == cooled.digest


def test_router_bias_and_parameters_are_read_back_as_written(parent: Artifact) -> None:
    run = read_run(parent).run
    params, bias = read_model(parent, run)
    state = read_state(parent, run, one_device(run.model))
    assert same(bias, state.router_bias)
    assert equal(params, state.parameters)


def test_a_parent_at_its_floor_has_nothing_to_decay_from(tmp_path: Path) -> None:
    finished = read_run(finished_run(tmp_path, resolve(tiny_config(stop_after_steps=None)), {}))
    with pytest.raises(ValueError, match=r"stop the parent earlier \(stop_after_steps\) or lower floor_share"):
        branched(BranchConfig(cooldown_steps=5), finished, "0" * 64)


def test_a_length_that_does_not_divide_the_tokens_of_a_step_is_refused(tmp_path: Path) -> None:
    schedule = ScheduleConfig(schedule_steps=20)
    finished = read_run(finished_run(tmp_path, resolve(tiny_config(schedule=schedule)), {}))
    with pytest.raises(ValueError, match="sequence_tokens = 48 doesn't divide the parent's 128 tokens per step"):
        branched(BranchConfig(cooldown_steps=5, sequence_tokens=48), finished, "0" * 64)
