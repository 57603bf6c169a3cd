"""Accounts against published numbers, and the command that prints them."""

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from model.accounting import account_of, position_at, run_account_of, utilization_of
from model.flops import PUBLISHED, SIZING
from model.presets import PRESETS, depth_of, kv_heads_of, ladder_model, long_context
from orchestration.model_command import UnknownPresetError, show_model
from tests.model.learner import variant


def test_the_67b_model_is_counted_as_published() -> None:
    preset = PRESETS["snowball-67b"]
    model, run = account_of(preset.model, 8192), run_account_of(preset)
    assert run is not None
    assert f"{model.total_parameters:.4g}" == "6.708e+10"
    assert f"{model.active_parameters:.4g}" == "2.012e+09"
    assert f"{run.train_flops:.4g}" == "1.692e+23"
    assert f"{run.tokens:.4g}" == "1.007e+13"
    assert run.steps == 157_500
    assert (run.first_batch_tokens, run.last_batch_tokens) == (4096 * 8192, 8192 * 8192)
    assert f"{run.rates.sphere_learning_rate:.4g}" == "0.003733"
    assert f"{run.rates.adam_learning_rate:.3g}" == "0.000861"


def test_its_step_102_000_is_6_342_trillion_tokens() -> None:
    position = position_at(PRESETS["snowball-67b"], 102_000)
    assert f"{position.tokens:.4g}" == "6.342e+12"
    assert position.share_of_run == pytest.approx(0.63, abs=0.001)


def test_the_535b_model_is_counted_as_published() -> None:
    preset = PRESETS["ep-535b"]
    model, run = account_of(preset.model, 4096), run_account_of(preset)
    assert run is not None
    assert f"{model.total_parameters:.5g}" == "5.3547e+11"
    assert f"{model.active_parameters:.4g}" == "2.293e+10"
    assert f"{run.train_flops:.4g}" == "2.707e+24"
    assert run.tokens_per_active_parameter == pytest.approx(785, abs=1)  # 791 at the sizing rule's 18.1T


def test_the_360b_model_is_counted_as_published_and_has_no_run() -> None:
    model = account_of(PRESETS["fsdp-360b"].model, 4096)
    assert f"{model.total_parameters:.5g}" == "3.5964e+11"
    assert f"{model.active_with_vocabulary:.4g}" == "2.262e+10"
    assert run_account_of(PRESETS["fsdp-360b"]) is None
    with pytest.raises(ValueError, match="no number of tokens is known"):
        PRESETS["fsdp-360b"].training()


def test_the_ladders_depths_and_heads_follow_their_rules() -> None:
    assert [depth_of(width) for width in (512, 768, 1024, 1280, 1536, 2048, 2560)] == [6, 8, 11, 13, 16, 21, 26]
    assert [kv_heads_of(heads) for heads in (4, 6, 8, 10, 12, 16, 20, 48)] == [1, 1, 2, 2, 3, 4, 5, 12]
    assert account_of(ladder_model(2560), 8192) == account_of(PRESETS["snowball-67b"].model, 8192)


def test_utilization_names_its_convention_and_reproduces_a_published_rate() -> None:
    windowed = account_of(PRESETS["snowball-67b"].model, 8192)
    assert utilization_of(windowed, 3.12e6, 1024, 275e12).model_flops_utilization == pytest.approx(0.186, abs=0.001)
    sizing = account_of(PRESETS["snowball-67b"].model, 8192, SIZING)
    assert (sizing.convention.head, sizing.convention.windows) == (False, False)


def test_latent_experts_cost_their_width_and_their_two_projections() -> None:
    plain, latent = variant(), variant(latent_width=8)
    saved = 6 * (plain.width - 8) * plain.expert_width * plain.experts_per_token - 4 * plain.width * 8
    difference = account_of(plain, 16).forward_flops_per_token - account_of(latent, 16).forward_flops_per_token
    assert difference == plain.layers * saved


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.tokens])
def test_every_preset_with_a_budget_can_be_trained_by_the_published_recipe(name: str) -> None:
    config = PRESETS[name].training()
    assert config.end_step == PRESETS[name].steps
    assert type(config).model_validate_json(config.model_dump_json()) == config
    assert (config.optimizer.matrix_rule, config.optimizer.head_rule) == ("muon_sphere", "adam_sphere")


def test_the_published_extension_is_a_branch() -> None:
    branch = long_context(cooldown_steps=3150)
    assert (branch.sequence_tokens, branch.batch_sequences, branch.qk_scale_growth) == (65_536, None, 0.1)


def test_the_command_prints_a_table_with_every_golden_number() -> None:
    printed = io.StringIO()
    console = Console(file=printed, width=120)
    show_model(
        console, "snowball-67b", convention=PUBLISHED, sequence_tokens=None, step=102_000, speed=(3.12e6, 1024, 275e12), as_json=False
    )
    for number in ("67.08B", "2.012B", "1.692e+23", "6.342T", "0.003733", "0.0008614", "18.6"):
        assert number in printed.getvalue(), number


def test_the_command_line_prints_json_with_its_convention() -> None:
    arguments = ["model", "ep-535b", "--json", "--no-head", "--tokens-per-s", "1e6", "--devices", "64", "--peak-flops", "2.5e15"]
    command = "import sys; from orchestration.cli import main; sys.argv[0] = 'seaway'; main()"
    printed = subprocess.run([sys.executable, "-c", command, *arguments], check=True, capture_output=True, timeout=250).stdout
    found = json.loads(printed)
    assert found["model"]["total_parameters"] == 535_474_434_048
    assert found["model"]["convention"] == {"head": False, "windows": True, "causal": "rectangle", "gates": False}
    assert 0 < found["utilization"]["model_flops_utilization"] < 1
    assert found["config"]["latent_width"] == 3072


def test_an_unknown_model_is_answered_in_one_sentence() -> None:
    with pytest.raises(UnknownPresetError, match="model 'd511' is unknown; choose one of tiny, demo, d512"):
        show_model(Console(), "d511", convention=PUBLISHED, sequence_tokens=None, step=None, speed=None, as_json=False)
