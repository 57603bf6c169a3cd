"""Finished runs made by hand: the files that the scaling law, predictions and releases read, without training."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.artifacts.artifact import Artifact
from infra.artifacts.config import identity_of
from infra.artifacts.writer import Writer
from model.config import HeldOutConfig, LoaderConfig, ScheduleConfig, TrainConfig
from model.presets import tiny_model
from model.run import CONFIG, FLOPS_CONVENTIONS, STATE, Data, Run, RunState, resolve
from tests.builders import publish

DATA = Data(store="5" * 64, mixture="6" * 64)


def tiny_config(**fields: Any) -> TrainConfig:
    """A run of seconds; `fields` replace any of its settings."""
    settings: dict[str, Any] = {
        "model": tiny_model(),
        "schedule": ScheduleConfig(schedule_steps=20, warmup_steps=2),
        "loader": LoaderConfig(batch_sequences=4, sequence_tokens=32),
        "held_out": HeldOutConfig(sequence_tokens=32, tokens_per_domain=400, max_document_tokens=40, batch_sequences=4),
        "stop_after_steps": 16,
        "log_every_steps": 2,
        "eval_every_steps": 8,
    }
    return TrainConfig(**{**settings, **fields})


def finished_run(
    directory: Path,
    run: Run,
    measures: Mapping[str, float],
    *,
    data: Data = DATA,
    step: int | None = None,
    tokenizer: str | None = None,
) -> Artifact:
    """An artifact with a run's config, state and one held-out row after its last update."""
    out = Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"))
    step = run.end_step if step is None else step
    spent = {"tokens": run.tokens_after(step), "flops": run.flops_after(step)}
    state = RunState(step=step, **spent, flops_conventions=FLOPS_CONVENTIONS, data=data, tokenizer=tokenizer)
    out.write_json(CONFIG, identity_of(run))
    out.write_json(STATE, state.model_dump(mode="json"))
    with out.open("evals.jsonl") as stream:
        stream.write(json.dumps({"step": run.end_step, **measures}).encode() + b"\n")
    return publish(directory, out, {})


def cell(directory: Path, loss: float, *, steps: int = 20, **fields: Any) -> Artifact:
    """A ladder cell of `steps` scheduled steps, stopped at four fifths, with the given macro loss."""
    config = tiny_config(schedule=ScheduleConfig(schedule_steps=steps), stop_after_steps=steps * 4 // 5, **fields)
    return finished_run(directory, resolve(config), {"macro_nats_per_token": loss})
