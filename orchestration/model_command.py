"""`seaway model`: what a named model weighs, costs and is trained with, before anything is trained."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from model.accounting import ModelAccount, Position, RunAccount, Utilization, account_of, position_at, run_account_of, utilization_of
from model.flops import FlopConvention
from model.presets import PRESETS, Preset
from orchestration.errors import CommandError


class UnknownPresetError(CommandError):
    """No model has this name."""


def show_model(
    console: Console,
    name: str,
    *,
    convention: FlopConvention,
    sequence_tokens: int | None,
    step: int | None,
    speed: tuple[float, int, float] | None,
    as_json: bool,
) -> None:
    """Print a preset's account, as tables or as one JSON object.

    Args:
        sequence_tokens: count FLOPs at another length than the preset's.
        step: also where its run stands after so many updates.
        speed: tokens/s, devices and FLOP/s of one device: also the utilisation they amount to.

    Raises:
        UnknownPresetError: there is no such preset; the message names all.
    """
    if name not in PRESETS:
        raise UnknownPresetError(f"model {name!r} is unknown; choose one of {', '.join(PRESETS)}")
    preset = PRESETS[name]
    model = account_of(preset.model, sequence_tokens or preset.loader.sequence_tokens, convention)
    run = run_account_of(preset, convention)
    position = None if step is None else position_at(preset, step, convention)
    utilization = None if speed is None else utilization_of(model, *speed)
    if as_json:
        parts = {"model": model, "run": run, "position": position, "utilization": utilization}
        found: dict[str, Any] = {key: part.model_dump(mode="json") for key, part in parts.items() if part is not None}
        print(json.dumps({"preset": name, "config": preset.model.model_dump(mode="json"), **found}, indent=1))
        return
    console.print(f"[bold]{name}[/]: {preset.about}")
    console.print(_table([*_shape(preset), *_weight(model), *_cost(model), *_run(run), *_position(position), *_speed(utilization)]))


def _table(rows: list[tuple[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _shape(preset: Preset) -> list[tuple[str, str]]:
    model = preset.model
    latent = f", in latent width {model.latent_width}" if model.latent_width else ""
    shared = f" + {model.shared_experts} shared x {model.shared_expert_width}" if model.shared_width else ""
    return [
        ("trunk", f"{model.layers} layers of width {model.width}, {model.heads} heads on {model.kv_heads} keys of {model.head_dim}"),
        ("experts", f"{model.experts} x {model.expert_width}, {model.experts_per_token} a token{latent}{shared}"),
        ("attention", _attention(preset)),
    ]


def _attention(preset: Preset) -> str:
    model = preset.model
    if model.window_tokens is None:
        return "global on every layer"
    globals_ = sum(model.is_global(layer) for layer in range(model.layers))
    return f"window {model.window_tokens} on {model.layers - globals_} layers, global on {globals_}"


def _weight(account: ModelAccount) -> list[tuple[str, str]]:
    return [
        ("parameters", _big(account.total_parameters)),
        ("active", f"{_big(account.active_parameters)} without embedding and head, {_big(account.active_with_vocabulary)} with both"),
    ]


def _cost(account: ModelAccount) -> list[tuple[str, str]]:
    convention = account.convention
    counted = [
        "head counted" if convention.head else "head left out",
        "windows seen" if convention.windows else "every layer sees the whole sequence",
        f"causal {convention.causal}",
        "gates counted" if convention.gates else "gates left out",
    ]
    per_token = f"{account.forward_flops_per_token:.4g} forward, {account.train_flops_per_token:.4g} in training"
    return [("FLOPs a token", f"{per_token}, at {account.sequence_tokens} tokens a sequence"), ("convention", ", ".join(counted))]


def _run(run: RunAccount | None) -> list[tuple[str, str]]:
    if run is None:
        return [("run", "none is known; only the shape was tried")]
    batch = f"{run.first_batch_tokens:,} tokens a step"
    if run.last_batch_tokens != run.first_batch_tokens:
        batch += f", {run.last_batch_tokens:,} at the end"
    rates = run.rates
    return [
        ("run", f"{_big(run.tokens)} tokens ({run.tokens_per_active_parameter:.1f} an active parameter) in {run.steps:,} steps, {batch}"),
        ("training", f"{run.train_flops:.4g} FLOPs"),
        ("rates by law", f"sphere {rates.sphere_learning_rate:.4g}, Adam {rates.adam_learning_rate:.4g}"),
        ("Adam", f"beta1 {rates.beta1:g}, beta2 {rates.beta2:.4g}, eps {rates.eps:.3g}"),
    ]


def _position(position: Position | None) -> list[tuple[str, str]]:
    if position is None:
        return []
    share = "" if position.share_of_run is None else f", {position.share_of_run:.1%} of the run"
    return [(f"step {position.step:,}", f"{_big(position.tokens)} tokens, {position.train_flops:.4g} FLOPs{share}")]


def _speed(found: Utilization | None) -> list[tuple[str, str]]:
    if found is None:
        return []
    machine = f"{found.devices} x {found.peak_flops_per_s:.4g} FLOP/s"
    return [("utilisation", f"{found.model_flops_utilization:.2%} of {machine} at {found.tokens_per_s:,.0f} tokens/s")]


def _big(number: float) -> str:
    """Four digits and a letter: 67.08B, 6.342T."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if number >= size:
            return f"{number / size:.4g}{letter}"
    return f"{number:.4g}"
