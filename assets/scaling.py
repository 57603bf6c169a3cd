"""ladder -> scaling_law -> prediction: small runs of the hero's recipe, the law they follow, and what it says of the hero."""

from assets.catalogued import in_catalog
from assets.lineage import each, same
from assets.partitions import CELLS
from assets.report import curves, numbers, table
from assets.runs import run_report
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact

RUN_INPUTS = {"store": same("store"), "mixture": same("mixture")}


@stage(
    program="model.train:train",
    config=lambda profile, cell: profile.cell_config(str(cell)),
    inputs=RUN_INPUTS,
    partitions=CELLS,
    group="scaling",
    kinds={"jax"},
    owner="team:model",
    automated=False,
    pool="accelerator",
    checks={"loss_is_finite": "Every logged loss is a finite number."},
)
def ladder(artifact: Artifact) -> Report:
    """One rung: the hero's recipe at a smaller size and budget."""
    return run_report(artifact)


@stage(
    program="model.scaling:fit_scaling_law",
    inputs={"ladder": each("ladder")},
    group="scaling",
    kinds={"scipy"},
    owner="team:model",
    automated=False,
)
def scaling_law(artifact: Artifact) -> Report:
    """Held-out loss against training FLOPs over the rungs: L = E + A C^-a. Look at the residuals."""
    fitted = artifact.read_json("scaling_law.json")
    cells = fitted["cells"]
    flops = [cell["flops"] for cell in cells]
    line = [cell["loss"] - cell["residual"] for cell in cells]
    return Report(
        metadata={
            **numbers(artifact.stats),
            "cells": table(cells),
            "law": curves(
                {"cells": (flops, [cell["loss"] for cell in cells]), "law": (flops, line)},
                "Held-out loss against training FLOPs",
                "FLOPs",
                "nats per token",
                log_x=True,
                points=("cells",),
            ),
        }
    )


@stage(
    program="model.prediction:predict",
    config=lambda profile, _: profile.prediction_config(),
    inputs={"scaling_law": same("scaling_law")},
    group="scaling",
    kinds={"json"},
    owner="team:model",
    automated=False,
    record=in_catalog,
)
def prediction(artifact: Artifact) -> Report:
    """What the hero will measure, written down before it starts: metric, data, token mark, value, tolerance."""
    return Report(metadata=numbers(artifact.stats))
