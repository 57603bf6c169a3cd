"""release: the model as others load it, with a card that says what it is made of."""

import dagster as dg

from assets.lineage import each, same
from assets.report import numbers
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact


@stage(
    program="model.release:release",
    config=lambda profile, _: profile.release_config(),
    inputs={
        "checkpoint": same("cooldown"),
        **{name: same(name) for name in ("tokenizer", "store", "mixture", "prediction")},
        "evaluation": each("evaluation"),
        "raw": each("raw"),
    },
    group="release",
    kinds={"safetensors"},
    owner="team:model",
    automated=False,
)
def release(artifact: Artifact) -> Report:
    """Weights, config, tokenizer and model card. The card's lineage paragraph is generated from what was built."""
    with artifact.open("README.md") as stream:
        card = stream.read().decode()
    return Report(metadata={**numbers(artifact.stats), "model_card": dg.MetadataValue.md(card)})
