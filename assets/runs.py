"""What a person asks of a training run, whichever asset it is: the loss curve, the learning rate, the held-out loss."""

import json
import math
from typing import Any

from assets.report import curves, numbers, table
from assets.stage import Report
from infra.artifacts.artifact import Artifact


def run_report(artifact: Artifact) -> Report:
    """The curves of a run, its last held-out losses, and whether every loss is a number."""
    metrics, evals = rows(artifact, "metrics.jsonl"), rows(artifact, "evals.jsonl")
    steps = [row["step"] for row in metrics]
    return Report(
        metadata={
            **numbers(artifact.stats),
            "loss_curve": curves(
                {
                    "train": (steps, [row["loss"] for row in metrics]),
                    "held out": ([row["step"] for row in evals], [row["macro_nats_per_token"] for row in evals]),
                },
                "Loss",
                "step",
                "nats per token",
            ),
            "learning_rate": curves({"": (steps, [row["learning_rate"] for row in metrics])}, "Learning rate", "step", "share of peak"),
            "held_out": table(evals[-3:]),
        },
        checks={"loss_is_finite": all(math.isfinite(row["loss"]) for row in metrics)},
    )


def rows(artifact: Artifact, name: str) -> list[dict[str, Any]]:
    """The rows of a JSON Lines file."""
    with artifact.open(name) as stream:
        return [json.loads(line) for line in stream.read().split(b"\n") if line]
