"""What must not be trained on, and when a document counts as contaminated. Imports nothing heavy."""

from typing import Self

from pydantic import Field, model_validator

from infra.artifacts.config import ProgramConfig, execution_only
from ops.dataflow.config import Execution


class EvaluationSet(ProgramConfig):
    """Evaluation items that must not be trained on, as files.

    Files are JSON Lines, JSON or CSV, plain or .gz. A field is a dotted path; lists on the way are entered.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*(/[a-z0-9_.-]+)*$")
    root: str = execution_only()
    glob: str = "**/*.jsonl"  # below the root
    fields: tuple[str, ...] = ()  # what an item asks; each is a text of its own, and short ones count too
    answers: tuple[str, ...] = ()  # solutions and reasoning; guarded where they are long: "Paris" or "True" is nobody's answer alone
    code: tuple[str, ...] = ()  # source code in parts, such as a prompt and its solution; joined in this order, its functions count too
    required: bool = True  # a missing required set fails the build; a missing other one is listed in the stats
    observed: str = ""  # `ops.decontaminate.evaluations.observe(set)`: stands for the files in the recipe

    @model_validator(mode="after")
    def _guards_something(self) -> Self:
        if not (self.fields or self.answers or self.code):
            raise ValueError(f"evaluation {self.name!r} guards nothing; name at least one of fields, answers and code")
        return self

    @model_validator(mode="after")
    def _does_not_pose_as_held_out(self) -> Self:
        if self.name.partition("/")[0] == "held_out":
            raise ValueError(f"evaluation {self.name!r}: names under held_out/ belong to the held-out documents; choose another")
        return self


class EvaluationNgramsConfig(ProgramConfig):
    """What counts as evaluation text, and as boilerplate that every source has.

    A text's passages are its long paragraphs, or the whole text where it has none. A long passage is known by its
    n-grams of words with at least one letter, a short one by all its words, a function by its shape.
    """

    evaluations: tuple[EvaluationSet, ...] = ()
    ngram_words: int = Field(13, ge=9, le=15)
    least_words: int = Field(3, ge=1, le=8)  # shorter texts give nothing: "A." and "..." made 18 % phantom hits elsewhere
    function_tokens: int = Field(30, ge=8)  # of a function's body; smaller ones are written by everybody
    max_sharing: int = Field(16, ge=1, le=16)  # passages that may have one n-gram, items that may have one text: beyond, it is a template
    held_out: bool = True  # guard the long paragraphs of held-out documents as evaluations `held_out/{source}`
    boilerplate_documents: int = Field(50, ge=2)  # a feature in this many train documents of a source ...
    boilerplate_sources: int = Field(3, ge=1)  # ... in each of this many sources is nobody's leak: dropped on both sides
    boilerplate_sample_documents: int = Field(1_000_000, ge=1)  # of each source
    batch_rows: int = execution_only(2_048, ge=1)

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [evaluation.name for evaluation in self.evaluations]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"evaluation names occur twice: {', '.join(repeated)}; give each set its own")
        return self


class ContaminationConfig(ProgramConfig):
    """When a document counts as contaminated."""

    min_coverage: float = Field(0.5, gt=0, le=1)  # of a passage's features, those that few passages share weighing more
    boilerplate_share: float = Field(0.005, gt=0, le=1)  # a feature in this share of a source's sampled documents ...
    boilerplate_documents: int = Field(5, ge=2)  # ... and in this many of them is that source's boilerplate: dropped on both sides
    boilerplate_sample_documents: int = Field(5_000, ge=1)
    max_hits: int = Field(64, ge=1)  # kept per document, those that cover most first
    samples: int = Field(20, ge=0)  # flagged places, written for people to read
    batch_rows: int = execution_only(2_048, ge=1)
    execution: Execution = execution_only(Execution())
