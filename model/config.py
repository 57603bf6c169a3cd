"""The learner, declared once: architecture, optimizer, schedule, runs. Imports nothing heavy."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from infra.artifacts.config import ProgramConfig, execution_only, identity_of


class KernelConfig(ProgramConfig):
    """How the mathematics of a model is carried out.

    Every choice computes the same function, but sums in another order: results agree within rounding, not
    bit for bit. An artifact's recipe promises bytes, so these fields bear identity like any other.
    """

    compute_dtype: Literal["float32", "bfloat16"] = "bfloat16"  # matmuls; parameters, statistics and losses stay float32
    moe_backend: Literal["dense", "blocked", "ragged"] = "ragged"  # ragged is native on TPU; CPUs want blocked
    moe_block_rows: int = Field(default=64, ge=1)  # blocked only: rows one expert multiplies at once; 64-128 is flat on CPU
    attention_backend: Literal["plain", "triangle", "library"] = "library"  # library picks fused kernels on accelerators
    attention_block_tokens: int = Field(default=128, ge=1)  # triangle only: queries that share one visible range of keys
    layer_loop: Literal["scan", "unrolled"] = "scan"  # a CPU runs unrolled layers 10-25% faster; 48 of them compile slowly
    rematerialize_layers: bool = False  # recompute a layer in the backward pass: memory for about 15% time
    loss_chunk_tokens: int = Field(default=1024, ge=1)  # tokens whose logits exist at one time


class ModelConfig(ProgramConfig):
    """Architecture of a pre-norm MoE decoder. Every layer is MoE; there are no biases."""

    vocab_size: int = Field(ge=2)
    width: int = Field(ge=1)
    layers: int = Field(ge=1)
    heads: int = Field(ge=1)  # query heads
    kv_heads: int = Field(ge=1)  # each serves heads / kv_heads query heads
    head_dim: int = Field(ge=1)

    experts: int = Field(ge=1)
    experts_per_token: int = Field(ge=1)
    expert_width: int = Field(ge=1)
    shared_expert_width: int = Field(ge=0)  # 0: no shared expert
    router_balancing: Literal["none", "quantile"] = "quantile"  # how the selection bias of the next step is found
    router_combine_scale: float = Field(default=2.5, gt=0)  # what a token's combine weights sum to

    window_tokens: int | None = Field(default=2048, ge=1)  # keys a query of a windowed layer sees, itself included; None: all layers global
    global_every: int | None = Field(default=4, ge=1)  # every n-th layer and the last one are global; None: no layer is
    rope_layers: Literal["windowed", "all"] = "windowed"  # windowed: global layers carry no rotation (NoPE)
    rope_pairing: Literal["halves"] = "halves"  # channel i turns with channel i + rotated / 2; interleaved weights don't fit
    rope_theta: float = Field(default=10_000.0, gt=1)
    rope_fraction: float = Field(default=0.5, ge=0, le=1)  # share of a head's channels that turn

    qk_norm: bool = True
    qk_norm_eps: float = Field(default=1e-6, gt=0)
    qk_scale: float = Field(default=1.3, gt=0)  # multiplies q on top of 1/sqrt(head_dim); the knob of a context extension
    attention_gate: bool = False  # a head's output times 2 sigmoid(x Wg)
    exclusive_attention: bool = False  # a head's output loses its component along the token's own value
    norm_eps: float = Field(default=1e-5, gt=0)
    norm_gate_rank: int = Field(default=0, ge=0)  # rank of the self-gate behind every norm; 0: no gate
    init_scale: float = Field(default=0.5, gt=0)  # matrices start at a deviation of init_scale / sqrt(width)
    z_loss: float = Field(default=1e-4, ge=0)  # weight of the mean squared log-partition

    kernels: KernelConfig = KernelConfig()

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads = {self.heads} is no multiple of kv_heads = {self.kv_heads}; every KV head serves equally many")
        if self.rotated_channels % 2:
            raise ValueError(
                f"rope_fraction = {self.rope_fraction} rotates {self.rotated_channels} of head_dim = {self.head_dim} channels; "
                "rotation pairs channels, so choose a share that gives an even count"
            )
        return self

    @model_validator(mode="after")
    def _experts_fit(self) -> Self:
        if self.experts_per_token > self.experts:
            raise ValueError(f"experts_per_token = {self.experts_per_token} exceeds experts = {self.experts}")
        if self.router_balancing == "quantile" and self.experts_per_token == self.experts:
            raise ValueError("router_balancing = 'quantile' needs an expert that is not chosen; with all chosen set it to 'none'")
        return self

    @model_validator(mode="after")
    def _positions_are_visible(self) -> Self:
        if self.rotated_channels and not any(self.rotates(layer) for layer in range(self.layers)):
            raise ValueError("every layer is global and rope_layers = 'windowed', so no layer sees positions; set rope_layers = 'all'")
        if self.window_tokens is None and self.global_every is None:
            raise ValueError("global_every = None makes every layer windowed, but window_tokens is None; give the window")
        return self

    @property
    def rotated_channels(self) -> int:
        return round(self.head_dim * self.rope_fraction)

    def is_global(self, layer: int) -> bool:
        """Whether layer (from 0) sees its whole document."""
        if self.window_tokens is None:
            return True
        if self.global_every is None:
            return False
        return (layer + 1) % self.global_every == 0 or layer == self.layers - 1

    def window(self, layer: int) -> int | None:
        """Keys a query of this layer sees, itself included; None for all."""
        return None if self.is_global(layer) else self.window_tokens

    def rotates(self, layer: int) -> bool:
        """Whether this layer turns queries and keys by position."""
        return self.rope_layers == "all" or not self.is_global(layer)


CPU_KERNELS = KernelConfig(
    compute_dtype="float32",  # without AMX bfloat16 only adds conversions
    moe_backend="blocked",
    attention_backend="triangle",
    attention_block_tokens=64,
    layer_loop="unrolled",
    loss_chunk_tokens=512,
)


def tiny_model() -> ModelConfig:
    """Every mechanism at the smallest size, for tests: compiles in seconds."""
    return ModelConfig(
        vocab_size=64,
        width=32,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=8,
        experts=4,
        experts_per_token=2,
        expert_width=16,
        shared_expert_width=32,
        window_tokens=8,
        global_every=2,
        kernels=CPU_KERNELS.model_copy(update={"moe_block_rows": 4, "attention_block_tokens": 8, "loss_chunk_tokens": 16}),
    )


def demo_model() -> ModelConfig:
    """What two CPU cores train in minutes to something clearly better than counting words."""
    return ModelConfig(
        vocab_size=4096,
        width=128,
        layers=4,
        heads=4,
        kv_heads=2,
        head_dim=32,
        experts=8,
        experts_per_token=2,
        expert_width=128,
        shared_expert_width=128,
        window_tokens=64,
        global_every=4,
        kernels=CPU_KERNELS,
    )


class OptimizerConfig(ProgramConfig):
    """Muon for matrices, Adam for everything else; which leaf belongs where is declared in model/parameters.py."""

    muon_learning_rate: float = Field(default=0.01, gt=0)  # peak
    muon_momentum: float = Field(default=0.95, ge=0, lt=1)
    muon_nesterov: bool = True
    muon_ns_steps: int = Field(default=5, ge=1)
    muon_ns_coefficients: Literal["standard", "dion"] = "standard"
    muon_update_rms: float | None = Field(
        default=0.2, gt=0
    )  # same update size for every shape (arXiv 2502.16982); None: sqrt(max(1, out/in))
    muon_eps: float = Field(default=1e-8, gt=0)
    muon_weight_decay: float = Field(default=0.0, ge=0)
    adam_learning_rate: float = Field(default=0.003, gt=0)  # peak
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    adam_beta2: float = Field(default=0.95, ge=0, lt=1)
    adam_eps: float = Field(default=1e-8, gt=0)
    adam_weight_decay: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _coefficients_suffice(self) -> Self:
        if self.muon_ns_coefficients == "dion" and self.muon_ns_steps > 5:
            raise ValueError(f"the 'dion' coefficients describe 5 Newton-Schulz steps, not muon_ns_steps = {self.muon_ns_steps}")
        return self


class ScheduleConfig(ProgramConfig):
    """Learning rate over steps, as a share of the peak; one shape for every optimizer group.

    Steps count from 0 over a run and go on through its branches: a cooldown starts at its parent's `start_step`.
    """

    kind: Literal["linear", "wsd", "cooldown"] = "linear"
    schedule_steps: int = Field(ge=1)  # sizes the schedule; when a run stops is a setting of the run
    start_step: int = Field(default=0, ge=0)
    start_share: float = Field(default=1.0, gt=0, le=1)  # cooldown only: share at start_step
    warmup_steps: int = Field(default=0, ge=0)
    decay_steps: int = Field(default=0, ge=0)  # wsd only: steps from the plateau down to the floor
    floor_share: float = Field(default=0.05, ge=0, le=1)

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        if self.kind == "cooldown":
            if self.warmup_steps or self.decay_steps:
                raise ValueError("a cooldown joins its parent's rate and only decays; leave warmup_steps and decay_steps at 0")
            if self.floor_share > self.start_share:
                raise ValueError(f"floor_share = {self.floor_share} lies above start_share = {self.start_share}; a cooldown can't rise")
            return self
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


class LoaderConfig(ProgramConfig):
    """The shape of a batch, and the order of the data. What is read, and how much of each, is the mixture's business."""

    batch_sequences: int = Field(default=256, ge=1)
    sequence_tokens: int = Field(default=4096, ge=2)
    seed: int = Field(default=0, ge=0, lt=2**62)  # a branch takes another one: it must not read its parent's first batches again


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
    checkpoints: CheckpointPolicy = execution_only(default=CheckpointPolicy())

    @model_validator(mode="after")
    def _run_fits_its_schedule(self) -> Self:
        if self.schedule.kind == "cooldown":
            raise ValueError("a run from scratch can't follow a cooldown schedule; use the branch program with a parent checkpoint")
        if self.end_step > self.schedule.schedule_steps:
            raise ValueError(
                f"stop_after_steps = {self.end_step} lies behind schedule_steps = {self.schedule.schedule_steps}; lengthen the schedule"
            )
        return self

    @property
    def end_step(self) -> int:
        return self.schedule.schedule_steps if self.stop_after_steps is None else self.stop_after_steps


class BranchConfig(ProgramConfig):
    """A cooldown that leaves a finished run: what changes. Everything else is the parent's, optimizer state included."""

    cooldown_steps: int = Field(ge=1)
    floor_share: float | None = Field(default=None, ge=0, le=1)  # share of the peak rate at the end; None: the parent's floor
    sequence_tokens: int | None = Field(default=None, ge=2)  # None: the parent's
    batch_sequences: int | None = Field(default=None, ge=1)  # None: as many as keep the parent's tokens per step
    qk_scale_growth: float = Field(default=0.1, ge=0)  # qk_scale times (growth ln(sequence growth) + 1), as YaRN scales attention
    loader_seed: int = Field(default=1, ge=0, lt=2**62)
    log_every_steps: int = Field(default=10, ge=1)
    eval_every_steps: int | None = Field(default=1000, ge=1)
    checkpoints: CheckpointPolicy = execution_only(default=CheckpointPolicy())


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
