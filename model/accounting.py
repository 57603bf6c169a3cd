"""What a model weighs and a run costs, in one place: parameters, FLOPs, tokens and utilisation, each with its convention."""

from pydantic import BaseModel, ConfigDict

from model.architecture import ModelConfig
from model.batches import batch_at, steps_for, tokens_before
from model.flops import PUBLISHED, FlopConvention, forward_flops_per_token, model_flops_utilization, train_flops_per_token
from model.parameters import count
from model.presets import Preset
from model.rates import Rates


class ModelAccount(BaseModel):
    """A model in numbers. `active` leaves out embedding and head; `active_with_vocabulary` has both."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: int
    global_layers: int
    total_parameters: int
    active_parameters: int
    active_with_vocabulary: int
    embedding_parameters: int
    head_parameters: int
    routed_expert_parameters: int
    sequence_tokens: int
    convention: FlopConvention
    forward_flops_per_token: float
    train_flops_per_token: float


class RunAccount(BaseModel):
    """A run in numbers; its model's convention holds for its FLOPs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int
    tokens: int
    first_batch_tokens: int
    last_batch_tokens: int
    train_flops: float
    tokens_per_active_parameter: float
    rates: Rates


class Position(BaseModel):
    """A place in a run: after `step` updates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    tokens: int
    train_flops: float
    share_of_run: float | None  # of its tokens


class Utilization(BaseModel):
    """Share of the devices' peak that goes into counted FLOPs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens_per_s: float
    devices: int
    peak_flops_per_s: float
    model_flops_utilization: float


def account_of(model: ModelConfig, sequence_tokens: int, convention: FlopConvention = PUBLISHED) -> ModelAccount:
    """Count a model at a sequence length."""
    parameters = count(model)
    return ModelAccount(
        layers=model.layers,
        global_layers=sum(model.is_global(layer) for layer in range(model.layers)),
        total_parameters=parameters.total,
        active_parameters=parameters.active,
        active_with_vocabulary=parameters.active_with_vocabulary,
        embedding_parameters=parameters.embedding,
        head_parameters=parameters.head,
        routed_expert_parameters=parameters.routed_expert,
        sequence_tokens=sequence_tokens,
        convention=convention,
        forward_flops_per_token=forward_flops_per_token(model, sequence_tokens, convention),
        train_flops_per_token=train_flops_per_token(model, sequence_tokens, convention),
    )


def run_account_of(preset: Preset, convention: FlopConvention = PUBLISHED) -> RunAccount | None:
    """Count a preset's run; None where no number of tokens belongs to it."""
    tokens, rates = preset.tokens, preset.rates
    if tokens is None or rates is None:
        return None
    loader, steps = preset.loader, steps_for(preset.loader, tokens)
    return RunAccount(
        steps=steps,
        tokens=tokens,
        first_batch_tokens=batch_at(loader, 0) * loader.sequence_tokens,
        last_batch_tokens=batch_at(loader, steps - 1) * loader.sequence_tokens,
        train_flops=tokens * train_flops_per_token(preset.model, loader.sequence_tokens, convention),
        tokens_per_active_parameter=tokens / count(preset.model).active,
        rates=rates,
    )


def position_at(preset: Preset, step: int, convention: FlopConvention = PUBLISHED) -> Position:
    """Where a preset's run stands after `step` updates."""
    tokens = tokens_before(preset.loader, step)
    flops = tokens * train_flops_per_token(preset.model, preset.loader.sequence_tokens, convention)
    return Position(step=step, tokens=tokens, train_flops=flops, share_of_run=tokens / preset.tokens if preset.tokens else None)


def utilization_of(account: ModelAccount, tokens_per_s: float, devices: int, peak_flops_per_s: float) -> Utilization:
    """MFU at a measured rate, by the account's convention."""
    share = model_flops_utilization(tokens_per_s, account.train_flops_per_token, devices, peak_flops_per_s)
    return Utilization(tokens_per_s=tokens_per_s, devices=devices, peak_flops_per_s=peak_flops_per_s, model_flops_utilization=share)
