"""One life of a run on as many host devices as XLA is told of: it ends by SIGKILL once so many steps are done, or in its artifact.

XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.model.lives DIRECTORY STORE MIXTURE [STEPS]
"""

import os
import signal
import sys
from pathlib import Path

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from model.config import CheckpointPolicy, LoaderConfig, OptimizerConfig, ScheduleConfig
from model.train import train
from tests.builders import publish
from tests.model.cells import tiny_config
from tests.model.learner import CHEAP, variant

MODEL = variant(layers=1, window_tokens=None, rope_layers="all", experts=8, shared_experts=0, shared_expert_width=0, kernels=CHEAP)
"""Compiles in the time of one layer."""

CONFIG = tiny_config(
    model=MODEL,
    schedule=ScheduleConfig(schedule_steps=60, warmup_steps=2),
    loader=LoaderConfig(batch_sequences=8, sequence_tokens=32),
    optimizer=OptimizerConfig(matrix_rule="muon_sphere", head_rule="adam_sphere"),
    checkpoints=CheckpointPolicy(every_s=1e9, every_steps=2),
    stop_after_steps=12,
    log_every_steps=1,
    eval_every_steps=None,
)
"""Ends in a row of every step's loss; divides by up to eight devices."""


def main(directory: str, store: str, mixture: str, steps: str | None = None) -> None:
    def progress(done: int, total: int | None, unit: str, **measures: float) -> None:
        if measures and steps is not None and done >= int(steps):
            os.kill(os.getpid(), signal.SIGKILL)

    out = Writer(f"{directory}/attempt", scratch_url=f"{directory}/scratch", progress=progress)
    stats = train(CONFIG, store=Artifact.open_at(store), mixture=Artifact.open_at(mixture), out=out)
    publish(Path(directory), out, stats.model_dump(mode="json"))


if __name__ == "__main__":
    main(*sys.argv[1:])
