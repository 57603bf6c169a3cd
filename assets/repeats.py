"""repeat -> repeat_perplexity: one cell of the ladder again under other seeds, so that a slice's noise is measured and not guessed.

Only for profiles that ask for `repeats`; others have neither asset.
"""

from assets.lineage import same
from assets.partitions import PROFILE, REPEATS
from assets.perplexity import scored_report, suite_of
from assets.runs import run_report
from assets.scaling import RUN_INPUTS
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact

if PROFILE.repeats is not None:

    @stage(
        program="model.train:train",
        config=lambda profile, key: profile.repeat_config(str(key)),
        inputs=RUN_INPUTS,
        partitions=REPEATS,
        group="scaling",
        kinds={"jax"},
        owner="team:model",
        automated=False,
        pool="accelerator",
        checks={"loss_is_finite": "Every logged loss is a finite number."},
    )
    def repeat(artifact: Artifact) -> Report:
        """A cell of the ladder with other initial parameters and another order of the data, and nothing else that differs."""
        return run_report(artifact)

    @stage(
        program="model.eval.perplexity.score:score_text",
        inputs={"checkpoint": same("repeat"), **{name: same(name) for name in ("tokenizer", "store", "evaluation_ngrams")}},
        config=suite_of,
        partitions=REPEATS,
        group="evaluation",
        kinds={"jax"},
        owner="team:evaluation",
        automated=False,
        pool="accelerator",
    )
    def repeat_perplexity(artifact: Artifact) -> Report:
        """The suite's bits per byte of one repetition. Their spread over the repetitions is what a difference on a slice must exceed."""
        return scored_report(artifact)
