"""hero -> cooldown: the run that the ladder predicts, and the branch that ends it."""

from assets.lineage import same
from assets.runs import run_report
from assets.scaling import RUN_INPUTS
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact


@stage(
    program="model.train:train",
    inputs=RUN_INPUTS,
    after=("prediction",),
    group="training",
    kinds={"jax"},
    owner="team:model",
    automated=False,
    pool="accelerator",
    checks={"loss_is_finite": "Every logged loss is a finite number."},
)
def hero(artifact: Artifact) -> Report:
    """The mixture-of-experts model, pre-trained on the mixture. It starts only once its prediction is published."""
    return run_report(artifact)


@stage(
    program="model.branch:branch",
    inputs={"parent": same("hero"), **RUN_INPUTS},
    group="training",
    kinds={"jax"},
    owner="team:model",
    automated=False,
    pool="accelerator",
    checks={"loss_is_finite": "Every logged loss is a finite number."},
)
def cooldown(artifact: Artifact) -> Report:
    """A branch of the hero: longer context, the learning rate joined where the hero left it and brought down."""
    return run_report(artifact)
