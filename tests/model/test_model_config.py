"""What an architecture, an optimizer and a schedule refuse at construction, in sentences."""

from typing import Any

import jax
import pytest
from pydantic import ValidationError

from infra.artifacts.config import identity_of
from model.config import LoaderConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from model.layout import check_leaf
from model.mesh_config import MeshConfig
from model.parameters import declare
from model.presets import demo_model, tiny_model
from tests.model.learner import variant


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"heads": 4, "kv_heads": 3}, "heads = 4 is no multiple of kv_heads = 3"),
        ({"head_dim": 6}, "rotates 3 of head_dim = 6 channels"),
        ({"experts": 2, "experts_per_token": 3}, "experts_per_token = 3 exceeds experts = 2"),
        ({"experts": 2, "experts_per_token": 2}, "set it to 'none'"),
        ({"window_tokens": None}, "no layer sees positions"),
        ({"window_tokens": None, "global_every": None, "rope_layers": "all"}, "give the window"),
        ({"windows": 3}, r"windows\n  Extra inputs are not permitted"),
        ({"layers": 3, "expert_tying_layers": 2}, "expert_tying_layers = 2 doesn't divide layers = 3"),
        ({"shared_experts": 0}, "shared_experts = 0 with shared_expert_width = 32"),
        ({"convolution_taps": 4, "convolution_sites": ()}, "convolution_taps = 4 with no convolution_sites"),
        ({"convolution_taps": 4, "convolution_sites": ("key", "key")}, "names a site twice"),
        ({"convolution_taps": 4, "convolution_sites": ("query",)}, "convolution_sites"),
        ({"head_dim": 5, "rope_fraction": 0.4, "partial_key_offset": True}, "head_dim = 5 is odd"),
    ],
)
def test_an_impossible_model_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        variant(**changes)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"warmup_steps": 10}, "fill all of schedule_steps = 10"),
        ({"kind": "wsd"}, "wsd needs decay_steps"),
        ({"decay_steps": 3}, "linear has none"),
        ({"start_step": 3}, "belong to kind = 'cooldown'"),
        ({"kind": "cooldown", "warmup_steps": 3}, "only decays"),
        ({"kind": "cooldown", "start_share": 0.1, "floor_share": 0.2}, "can't rise"),
    ],
)
def test_an_impossible_schedule_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        ScheduleConfig(**({"schedule_steps": 10} | fields))


def test_a_window_larger_than_the_sequence_is_refused() -> None:
    with pytest.raises(ValidationError, match="window_tokens = 8 is larger than sequence_tokens = 4"):
        TrainConfig(model=tiny_model(), schedule=ScheduleConfig(schedule_steps=10), loader=LoaderConfig(sequence_tokens=4))


@pytest.mark.parametrize(
    ("mesh", "changes", "sentence"),
    [
        ({"expert": 3}, {}, r"mesh\.expert = 3 doesn't divide experts = 4"),
        ({"data": 3}, {}, "batch_sequences = 8 can't be split over .*: choose a multiple of 3"),
        ({"replica": 2, "data": 2, "expert": 4}, {}, "batch_sequences = 8 can't be split over .*: choose a multiple of 16"),
        ({"model": 3}, {}, r"mesh\.model = 3 doesn't divide heads = 4"),
        ({"expert": 2}, {"capacity_factor": 1.0}, "capacity_shards = 1 must be a multiple of the 2 devices .* set it to 2"),
        ({"tensor": 2}, {}, r"tensor\n  Extra inputs are not permitted"),
    ],
)
def test_a_mesh_that_model_or_batch_cant_be_split_over_is_refused(mesh: dict[str, Any], changes: dict[str, Any], sentence: str) -> None:
    loader = LoaderConfig(batch_sequences=8, sequence_tokens=16)
    with pytest.raises(ValidationError, match=sentence):
        TrainConfig(model=variant(**changes), schedule=ScheduleConfig(schedule_steps=10), loader=loader, mesh=mesh)


def test_a_mesh_takes_the_devices_it_finds_along_its_data_axis_or_says_that_they_dont_fit() -> None:
    assert MeshConfig(expert=2).on(8).data == 4
    with pytest.raises(ValueError, match=r"1 x \? x 3 x 1 can't be laid over the 8 devices"):
        MeshConfig(expert=3).on(8)
    with pytest.raises(ValueError, match="1 x 4 x 1 x 1 can't be laid over the 2 devices"):
        MeshConfig(data=4).on(2)


def test_parameters_that_dont_divide_along_the_data_axis_are_refused_by_name() -> None:
    for leaf in jax.tree.leaves(declare(tiny_model())):
        check_leaf(leaf, MeshConfig(data=4))
    with pytest.raises(ValueError, match=r"mesh\.data = 5 doesn't divide 32, an axis of embedding \[64, 32\]"):
        check_leaf(declare(tiny_model())["embedding"], MeshConfig(data=5))


def test_where_the_work_is_done_is_no_part_of_what_a_run_is() -> None:
    spread = TrainConfig(model=tiny_model(), schedule=ScheduleConfig(schedule_steps=10), mesh=MeshConfig(expert=2))
    assert identity_of(spread) == identity_of(spread.model_copy(update={"mesh": MeshConfig()}))
    assert "mesh" not in identity_of(spread)


@pytest.mark.parametrize("steps", [(0,), (4, 3), (3, 3), (10,)])
def test_steps_that_a_run_cant_keep_are_refused(steps: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError, match="must ascend and lie between the first update and the last, 10"):
        TrainConfig(model=tiny_model(), schedule=ScheduleConfig(schedule_steps=10), keep_steps=steps)


def test_a_decay_on_a_sphere_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"muon_weight_decay = 0\.1 with matrix_rule = 'muon_sphere'"):
        OptimizerConfig(matrix_rule="muon_sphere", muon_weight_decay=0.1)


def test_more_steps_than_coefficients_are_refused() -> None:
    with pytest.raises(ValidationError, match="describe 5 Newton-Schulz steps"):
        OptimizerConfig(muon_ns_coefficients="dion", muon_ns_steps=6)


def test_every_fourth_layer_and_the_last_are_global() -> None:
    config = variant(layers=10, global_every=4, window_tokens=8)
    assert [config.is_global(layer) for layer in range(10)] == [False, False, False, True, False, False, False, True, False, True]
    assert config.window(0) == 8
    assert config.window(3) is None
    assert config.rotates(0)
    assert not config.rotates(9)


def test_presets_are_valid_and_survive_json() -> None:
    for config in (tiny_model(), demo_model()):
        assert type(config).model_validate_json(config.model_dump_json()) == config
