"""Every knob of the perplexity suite. Imports nothing heavy."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from infra.artifacts.config import ProgramConfig, execution_only
from ops.decontaminate.config import EvaluationSet

KiB = 1 << 10


class TextFiles(ProgramConfig):
    """A provider of JSON Lines (plain or .gz): rows of `text`, or of `input` and `target`, where only the target counts.

    Attributes:
        observed: fingerprint of the files (`ops.decontaminate.evaluations.observe`); stands for them in the recipe.
    """

    key: str
    root: str = execution_only()
    glob: str
    source: str  # where it is from, with its revision
    fidelity: Literal["high", "low"] = "high"
    observed: str = ""

    @property
    def as_set(self) -> EvaluationSet:
        """The files as what finds and fingerprints them."""
        return EvaluationSet(name="files", root=self.root, glob=self.glob, fields=("text", "input", "target"))


class PerplexityConfig(ProgramConfig):
    """What is scored, and how much of it.

    Attributes:
        benchmarks: evaluations whose items must not be in a slice; their n-grams come from the index that guards training too.
    """

    files: tuple[TextFiles, ...] = ()
    held_out: bool = True  # the store's held-out documents, a slice a domain
    probes: bool = True
    long_context: bool = True
    benchmarks: tuple[EvaluationSet, ...] = ()
    max_documents: int = Field(default=256, ge=1)  # of a slice
    max_document_bytes: int = Field(default=32 * KiB, ge=1)
    max_long_document_bytes: int = Field(default=256 * KiB, ge=1)
    min_long_document_bytes: int = Field(default=16 * KiB, ge=1)
    max_long_documents: int = Field(default=16, ge=1)
    probe_documents: int = Field(default=32, ge=1)  # of a probe slice
    context_tokens: int = Field(default=4096, ge=2)  # read at one time, or as many as the model was trained on
    batch_tokens: int = Field(default=8192, ge=1)  # bears identity: sums in another order differ in their last bits
    smallest_bucket_tokens: int = Field(
        default=64, ge=1
    )  # shorter texts are filled up; a small suite wants one shape, a large one little filling
    min_coverage: float = Field(default=0.5, gt=0, le=1)  # of a benchmark's passage: a document that holds so much is left out
    seed: int = 0


class PerplexityGapConfig(ProgramConfig):
    """Which models are compared, and what is shown.

    Attributes:
        baseline: the other side of every gap; None: the first model by name.
        repeats: model -> models that are the same run with another seed; their spread is the noise of a slice.
    """

    baseline: str | None = None
    repeats: Mapping[str, tuple[str, ...]] = {}
    worst_documents: int = Field(default=12, ge=0)
    shown_bytes: int = Field(default=6 * KiB, ge=1)  # of a document in the heat map
    interval_level: float = Field(default=0.95, gt=0, lt=1)
    interval_resamples: int = Field(default=1_000, ge=10)
    seed: int = 0

    @model_validator(mode="after")
    def _repeats_differ(self) -> "PerplexityGapConfig":
        for model, others in self.repeats.items():
            if model in others or len(set(others)) < len(others):
                raise ValueError(f"repeats.{model} = {list(others)} names a run twice; a run does not differ from itself")
        return self
