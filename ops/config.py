"""The knobs of the programs that lie in this folder itself; those of a plane are in its `config.py`. Imports nothing heavy."""

from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from infra.artifacts.config import ProgramConfig, execution_only
from ops.dataflow.config import Execution
from ops.units import MiB


class NormalizeConfig(ProgramConfig):
    """Document identity, shards and the held-out split."""

    shard_bytes: int = Field(default=256 * MiB, ge=1)  # UTF-8 bytes of text a shard
    max_whitespace_run: int = Field(default=128, ge=1, le=1000)  # characters; the longest whitespace token of the Llama tokenizer is 128
    held_out_rate: float = Field(default=0.001, ge=0, le=1)
    held_out_salt: str = "seaway-held-out-1"
    execution: Execution = execution_only(Execution())


class TokenizerConfig(ProgramConfig):
    """The vocabulary, and what it is learnt from."""

    vocab_size: int = Field(65_536, ge=258)  # 256 bytes and two specials at least; 65,536 is the last that fits uint16
    sample_bytes: int = Field(1024 * MiB, ge=1)  # UTF-8 bytes of text to learn from
    max_source_share: float = Field(0.5, gt=0, le=1)  # of the sample's bytes: one large crawl must not write the vocabulary alone
    min_pair_count: int = Field(2, ge=1)
    max_token_bytes: int = Field(32, ge=2)  # rulers of dashes and base64 runs otherwise take places in the vocabulary


class PruneTokenizerConfig(ProgramConfig):
    """The vocabulary that is left of a larger one."""

    vocab_size: int = Field(32_768, ge=258)  # with special tokens and the 256 bytes


class CompareTokenizersConfig(ProgramConfig):
    """What vocabularies are compared on, and the transformer whose cost they are read off at."""

    train_bytes: tuple[int, ...] = (1 * MiB, 2 * MiB, 4 * MiB, 8 * MiB)  # UTF-8 bytes of train text; a model is counted for each
    held_out_bytes: int = Field(1 * MiB, ge=1)
    body_parameters: int = Field(100_000_000, ge=1)  # that multiply, without embeddings and output
    width: int = Field(768, ge=1)  # of the output matrix
    reference: str = ""  # the vocabulary that others are put in relation to; empty: the first by name


class TokenizeConfig(ProgramConfig):
    """How documents become token ids."""

    window_chars: int = Field(32_768, ge=16)  # longer documents are encoded in windows, cut where the encoding can't differ
    batch_chars: int = execution_only(4 * MiB, ge=1)  # encoded per call: bounds memory
    execution: Execution = execution_only(Execution())


class TokenizeRestConfig(TokenizeConfig):
    """How what is left of documents becomes token ids."""

    source: str  # whose documents: repeated paragraphs are marked of all sources together


class StoreConfig(ProgramConfig):
    """Which documents are kept, and the buckets they fall into.

    Filters (languages, quality) apply to train documents alone, so that changing them never changes the exam.
    """

    domains: Mapping[str, str] = {}  # source -> domain; a source not named here is a domain of its own
    languages: tuple[str, ...] = ()  # codes to keep; empty keeps all
    min_quality: float | None = None  # quality scores below it are dropped; None keeps all
    execution: Execution = execution_only(Execution())


class ClusterStoreConfig(StoreConfig):
    """A store whose domains are clusters of documents instead of sources."""

    domain_clusters: int = Field(ge=1)  # domains by the finest view of at most so many clusters


class MixtureStage(ProgramConfig):
    """Weights from `start_sequence` on."""

    start_sequence: int = Field(0, ge=0)
    domain_weights: Mapping[str, float] = {}  # any positive scale; empty means natural: in proportion to tokens
    quality_multipliers: tuple[float, float, float, float, float] = (1.0, 1.0, 1.0, 1.0, 1.0)  # of a bucket's tokens, q0 to q4


class MixtureConfig(ProgramConfig):
    """In what proportions the buckets are read.

    `training_tokens` is the run that the mixture is made for: epochs are reported for it, and the cap refers to it.
    """

    stages: tuple[MixtureStage, ...] = Field((MixtureStage(),), min_length=1)
    block_sequences: int = Field(4096, ge=1, lt=65_536)  # counts are exact in every block of so many
    sequence_tokens: int = Field(4096, ge=1)  # the unit of `start_sequence`
    training_tokens: int = Field(1_000_000_000, ge=1)
    epoch_cap: float | None = Field(4.0, gt=0)  # beyond four passes, repeated tokens teach little (Muennighoff et al. 2023)
    min_bucket_weight: float = Field(0.0, ge=0, lt=1)  # smaller buckets are left out and listed; 0 makes them an error if they round away
    seed: int = Field(0, ge=0, lt=2**62)

    @model_validator(mode="after")
    def _stages_follow_each_other(self) -> Self:
        starts = [stage.start_sequence for stage in self.stages]
        if starts[0] != 0 or starts != sorted(set(starts)):
            raise ValueError(f"mixture stages start at sequences {starts}; the first must start at 0 and each later one after it")
        if uneven := [start for start in starts if start % self.block_sequences]:
            raise ValueError(f"mixture stages start at sequences {uneven}; use multiples of block_sequences={self.block_sequences}")
        return self


class NgramConfig(ProgramConfig):
    """The count-based baselines, and the held-out tokens they are scored on."""

    train_tokens: int = Field(16 * MiB, ge=1)  # all train buckets together, each in proportion; 130 bytes of memory a token
    held_out_tokens: int = Field(1 * MiB, ge=1)  # per domain; the evaluation of a model must use the same number
    max_document_tokens: int = Field(8192, ge=2)  # of a held-out document; and this same number (`HeldOutConfig` says why)
