"""The learner's programs, declared once: optimizer, schedule, runs. Imports nothing heavy."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from infra.artifacts.config import ProgramConfig, execution_only, identity_of
from model.architecture import ModelConfig
from model.mesh_config import MeshConfig
from model.newton_schulz import COEFFICIENTS, NewtonSchulzSet


class OptimizerConfig(ProgramConfig):
    """A rule for matrices, a rule for the output head, Adam for everything else; which leaf is what is declared in model/parameters.py.

    A rule on a sphere keeps every matrix' norm and reads its rate as a relative step (model/sphere.py). When a batch grows on the
    way, every rate grows with the square root of its growth, and Adam's moments keep their memory in tokens.
    """

    matrix_rule: Literal["muon", "muon_sphere"] = "muon"
    head_rule: Literal["adam", "adam_sphere"] = "adam"
    muon_learning_rate: float = Field(default=0.01, gt=0)  # peak
    muon_momentum: float = Field(default=0.95, ge=0, lt=1)
    muon_nesterov: bool = True
    muon_ns_steps: int = Field(default=5, ge=1)
    muon_ns_coefficients: NewtonSchulzSet = "standard"
    muon_ns_dtype: Literal["float32", "bfloat16"] = "float32"  # of the Newton-Schulz products; bfloat16 pays on accelerators
    muon_update_rms: float | None = Field(
        default=0.2, gt=0
    )  # muon only: same update size for every shape (arXiv 2502.16982); None: sqrt(max(1, out/in))
    muon_eps: float = Field(default=1e-8, gt=0)
    muon_weight_decay: float = Field(default=0.0, ge=0)  # muon only: on a sphere a decay does nothing
    head_learning_rate: float | None = Field(default=None, gt=0)  # peak; None: that of Adam, on a sphere that of Muon
    adam_learning_rate: float = Field(default=0.003, gt=0)  # peak
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    adam_beta2: float = Field(default=0.95, ge=0, lt=1)
    adam_eps: float = Field(default=1e-8, gt=0)
    adam_weight_decay: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _coefficients_suffice(self) -> Self:
        known = len(COEFFICIENTS[self.muon_ns_coefficients])
        if self.muon_ns_steps > known:
            raise ValueError(
                f"the {self.muon_ns_coefficients!r} coefficients describe {known} Newton-Schulz steps, "
                f"not muon_ns_steps = {self.muon_ns_steps}"
            )
        return self

    @model_validator(mode="after")
    def _spheres_have_no_decay(self) -> Self:
        if self.matrix_rule == "muon_sphere" and self.muon_weight_decay:
            raise ValueError(
                f"muon_weight_decay = {self.muon_weight_decay} with matrix_rule = 'muon_sphere': the norm is kept, "
                "so a decay does nothing; set 0"
            )
        return self

    @property
    def peak_head_learning_rate(self) -> float:
        if self.head_learning_rate is not None:
            return self.head_learning_rate
        return self.muon_learning_rate if self.head_rule == "adam_sphere" else self.adam_learning_rate


class ScheduleConfig(ProgramConfig):
    """Learning rate over steps, as a share of the peak; one shape for every optimizer group.

    Steps count from 0 over a run and go on through its branches: a cooldown starts at its parent's `start_step`.
    """

    kind: Literal["linear", "wsd", "cooldown"] = "linear"
    schedule_steps: int = Field(ge=1)  # sizes the schedule; when a run stops is a setting of the run
    start_step: int = Field(default=0, ge=0)
    start_share: float = Field(default=1.0, gt=0)  # cooldown only: share at start_step; above 1 where the parent's batch had grown
    warmup_steps: int = Field(default=0, ge=0)
    decay_steps: int = Field(default=0, ge=0)  # wsd only: steps from the plateau down to the floor
    decay_shape: Literal["linear", "one_minus_sqrt"] = "linear"  # of the fall to the floor: straight, or floor + (1 - sqrt(t)) of the rest
    floor_share: float = Field(default=0.05, ge=0)

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        if self.kind == "cooldown":
            if self.warmup_steps or self.decay_steps:
                raise ValueError("a cooldown joins its parent's rate and only decays; leave warmup_steps and decay_steps at 0")
            if self.floor_share > self.start_share:
                raise ValueError(f"floor_share = {self.floor_share} lies above start_share = {self.start_share}; a cooldown can't rise")
            return self
        if self.floor_share > 1:
            raise ValueError(f"floor_share = {self.floor_share} lies above the peak, which is 1")
        if self.start_step or self.start_share != 1.0:
            raise ValueError(f"start_step and start_share belong to kind = 'cooldown', not {self.kind!r}")
        if (self.decay_steps > 0) != (self.kind == "wsd"):
            raise ValueError(f"kind = {self.kind!r} with decay_steps = {self.decay_steps}: wsd needs decay_steps, linear has none")
        if self.warmup_steps + self.decay_steps >= self.schedule_steps:
            raise ValueError(
                f"warmup_steps + decay_steps = {self.warmup_steps + self.decay_steps} fill all of schedule_steps = {self.schedule_steps}"
            )
        return self


# --- Runs -------------------------------------------------------------------------------------------------


class BatchStage(ProgramConfig):
    """From which step of a run on a step reads how many sequences."""

    start_step: int = Field(ge=1)
    batch_sequences: int = Field(ge=1)


class LoaderConfig(ProgramConfig):
    """The shape of a batch, and the order of the data. What is read, and how much of each, is the mixture's business."""

    batch_sequences: int = Field(default=256, ge=1)
    batch_stages: tuple[BatchStage, ...] = ()  # later batch sizes; each compiles the step once more
    sequence_tokens: int = Field(default=4096, ge=2)
    seed: int = Field(default=0, ge=0, lt=2**62)  # a branch takes another one: it must not read its parent's first batches again

    @model_validator(mode="after")
    def _stages_ascend(self) -> Self:
        starts = [stage.start_step for stage in self.batch_stages]
        if any(before >= after for before, after in pairwise(starts)):
            raise ValueError(f"batch_stages must begin at ascending steps, not at {starts}")
        return self


Metric = Literal["macro_nats_per_token", "micro_nats_per_token", "macro_bits_per_byte", "micro_bits_per_byte"]
"""A held-out number: macro is the unweighted mean over domains, micro the ratio of sums over all of them."""


class HeldOutConfig(ProgramConfig):
    """Which held-out text is scored, and how it is cut. Numbers made under two of these don't compare."""

    sequence_tokens: int = Field(default=4096, ge=2)  # longest context of a scored token
    tokens_per_domain: int = Field(default=1 << 20, ge=1)  # the same number as the n-gram baselines'
    # Of a document, from its start; the baselines' number too. A few books would fill a domain and its interval would say
    # little: 8192 is two contexts of 4096 and makes a full domain 128 documents at least.
    max_document_tokens: int = Field(default=8192, ge=2)
    batch_sequences: int = Field(default=8, ge=1)  # moves a score by rounding alone, but bytes it does move

    @property
    def metric_identity(self) -> dict[str, Any]:
        """What two numbers must share to be comparable: all but the batch."""
        return {name: value for name, value in identity_of(self).items() if name != "batch_sequences"}


class CheckpointPolicy(ProgramConfig):
    """When a running job saves its state. Never changes the result: a resumed run ends in the same bytes."""

    every_s: float = execution_only(default=600.0, gt=0)
    every_steps: int | None = execution_only(default=None, ge=1)


class TrainConfig(ProgramConfig):
    """A run from scratch."""

    model: ModelConfig
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig
    loader: LoaderConfig = LoaderConfig()
    held_out: HeldOutConfig = HeldOutConfig()
    seed: int = Field(default=0, ge=0, lt=2**32)  # of the initial parameters
    stop_after_steps: int | None = Field(default=None, ge=1)  # ends the run; None: at the schedule's end
    log_every_steps: int = Field(default=10, ge=1)
    eval_every_steps: int | None = Field(default=1000, ge=1)  # None: before the first and after the last update alone
    keep_steps: tuple[int, ...] = ()  # updates after which the state is kept beside the final one, for branches to leave from
    checkpoints: CheckpointPolicy = execution_only(default=CheckpointPolicy())
    mesh: MeshConfig = execution_only(default=MeshConfig())

    @model_validator(mode="after")
    def _mesh_fits(self) -> Self:
        batches = (self.loader.batch_sequences, *(stage.batch_sequences for stage in self.loader.batch_stages))
        self.mesh.check(self.model, batches, self.loader.sequence_tokens)
        return self

    @model_validator(mode="after")
    def _run_fits_its_schedule(self) -> Self:
        if self.schedule.kind == "cooldown":
            raise ValueError("a run from scratch can't follow a cooldown schedule; use the branch program with a parent checkpoint")
        if self.end_step > self.schedule.schedule_steps:
            raise ValueError(
                f"stop_after_steps = {self.end_step} lies behind schedule_steps = {self.schedule.schedule_steps}; lengthen the schedule"
            )
        if list(self.keep_steps) != sorted(set(self.keep_steps)) or any(not 0 < step < self.end_step for step in self.keep_steps):
            raise ValueError(
                f"keep_steps = {list(self.keep_steps)} must ascend and lie between the first update and the last, {self.end_step}"
            )
        if self.model.window_tokens is not None and self.model.window_tokens > self.loader.sequence_tokens:
            raise ValueError(
                f"window_tokens = {self.model.window_tokens} is larger than sequence_tokens = {self.loader.sequence_tokens}, "
                "so windowed layers would be global ones; shorten the window or lengthen the sequence"
            )
        return self

    @property
    def end_step(self) -> int:
        return self.schedule.schedule_steps if self.stop_after_steps is None else self.stop_after_steps


class BranchConfig(ProgramConfig):
    """A cooldown that leaves a finished run, where it ended or at a step it kept: what changes. The rest, optimizer state included,
    is the parent's."""

    cooldown_steps: int = Field(ge=1)
    parent_step: int | None = Field(default=None, ge=1)  # leave the parent after so many updates, a step it kept; None: after its last one
    floor_share: float | None = Field(default=None, ge=0)  # share of the peak rate at the end; None: the parent's floor
    decay_shape: Literal["linear", "one_minus_sqrt"] = "linear"
    sequence_tokens: int | None = Field(default=None, ge=2)  # None: the parent's
    batch_sequences: int | None = Field(default=None, ge=1)  # None: as many as keep the parent's tokens per step
    qk_scale_growth: float = Field(default=0.1, ge=0)  # qk_scale times (growth ln(sequence growth) + 1), as YaRN scales attention
    loader_seed: int = Field(default=1, ge=0, lt=2**62)
    log_every_steps: int = Field(default=10, ge=1)
    eval_every_steps: int | None = Field(default=1000, ge=1)
    checkpoints: CheckpointPolicy = execution_only(default=CheckpointPolicy())
    mesh: MeshConfig = execution_only(default=MeshConfig())


class ScalingConfig(ProgramConfig):
    """Which loss a ladder is fitted on, and where its floor lies."""

    metric: Metric = "macro_nats_per_token"
    pinned_floor: float | None = Field(default=1.6, ge=0)  # in the metric's unit; None fits it and needs five cells


class PredictionConfig(ProgramConfig):
    """The run whose result is predicted, and how near a hit must be."""

    run: TrainConfig
    min_tolerance: float = Field(default=0.02, gt=0)  # in the metric's unit; never below the noise between equal runs
    standard_errors: float = Field(default=2.0, ge=0)  # of the law's extrapolation, where the ladder is long enough to know it


class EvaluateConfig(ProgramConfig):
    """How a checkpoint is scored and shown."""

    held_out: HeldOutConfig | None = None  # None: as the run scored itself, which a prediction needs
    interval_level: float = Field(default=0.95, gt=0, lt=1)
    interval_resamples: int = Field(default=1000, ge=10)
    seed: int = Field(default=0, ge=0, lt=2**32)  # of intervals and samples
    prompts: tuple[Annotated[str, Field(min_length=1)], ...] = ("The ", "import ", "This is ")  # a document's first words
    sample_tokens: int = Field(default=128, ge=1)
    temperature: float = Field(default=0.8, ge=0)


class ReleaseConfig(ProgramConfig):
    """What a person reads about a released model, beyond what its lineage proves."""

    name: str = Field(min_length=1)
    licence: str = Field(default="Apache-2.0", min_length=1)  # of the weights
    summary: str = ""
    source_licences: Mapping[str, str] = {}  # terms of each source, as its publisher states them
    limits: tuple[str, ...] = (
        "A base model: it continues text, it does not follow instructions, and no chat template belongs to it.",
        "It was not tested for safety, bias or factual accuracy, and it repeats errors of its training text.",
    )
