"""What an architecture, an optimizer and a schedule refuse at construction, in sentences."""

from typing import Any

import pytest
from pydantic import ValidationError

from model.config import LoaderConfig, OptimizerConfig, ScheduleConfig, TrainConfig
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
