"""The architecture, declared once: a pre-norm decoder in which every layer is a mixture of experts. Imports nothing heavy.

Each mechanism is a field of its own, on or off whatever the others are; what can't go together is refused here, before anything
is compiled.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from infra.artifacts.config import ProgramConfig

AttentionBackend = Literal["plain", "triangle", "library", "cudnn", "splash", "probe"]
"""Who computes attention. plain: the whole square. triangle: blocks of queries against what they may see, for CPUs. library: XLA's
choice. cudnn, splash: the fused kernels of NVIDIA and TPU. probe: the first that works on this device and agrees with plain, found
and logged when a run starts (model/attention_choice.py)."""


MoeBackend = Literal["dense", "looped", "blocked", "ragged"]
"""Who computes routed experts, all of them without a drop. dense: every expert on every token, the oracle. looped: expert after expert
in blocks of its rows, for CPUs. blocked: all blocks at once, each with a copy of its expert's matrices. ragged: XLA's grouped matmul,
native on TPU, expanded to every expert elsewhere."""


class KernelConfig(ProgramConfig):
    """How the mathematics of a model is carried out.

    Every choice computes the same function, but sums in another order: results agree within rounding, not
    bit for bit. An artifact's recipe promises bytes, so these fields bear identity like any other.
    """

    compute_dtype: Literal["float32", "bfloat16"] = "bfloat16"  # matmuls; parameters, statistics and losses stay float32
    moe_backend: MoeBackend = "ragged"
    moe_block_rows: int = Field(default=64, ge=1)  # looped, blocked: rows one expert multiplies at once
    attention_backend: AttentionBackend = "library"
    weight_gradients: Literal["direct", "turned"] = "direct"  # of attention's projections; turned: inputs are transposed first, for CPUs
    attention_block_tokens: int = Field(default=128, ge=1)  # triangle only: queries that share one visible range of keys
    layer_loop: Literal["scan", "unrolled"] = "scan"  # a CPU runs unrolled layers 10-25% faster; 48 of them compile slowly
    rematerialize_layers: bool = False  # recompute a layer in the backward pass: memory for about 15% time
    loss_blocks: Literal["tokens", "vocabulary"] = "tokens"  # what the loss takes a part of at one time; neither builds all logits
    loss_chunk_tokens: int = Field(default=1024, ge=1)  # tokens only: tokens whose logits exist at one time
    loss_block_vocabulary: int = Field(default=8192, ge=1)  # vocabulary only: entries whose logits exist at one time


ConvolutionSite = Literal["key", "attention", "moe"]
"""What a short convolution runs over: projected keys, or what a branch adds to the residual stream."""


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
    latent_width: int | None = Field(default=None, ge=1)  # routed experts work in this width; None: in the model's (arXiv 2601.18089)
    latent_norm: bool = True  # latent only: normalise what the experts read, so that its scale doesn't hang on the projection
    shared_experts: int = Field(default=1, ge=0)  # experts that every token uses
    shared_expert_width: int = Field(ge=0)  # of each; 0: no shared expert
    expert_tying_layers: int = Field(default=1, ge=1)  # neighbouring layers that share one bank of experts; each keeps its own router

    router_operands: Literal["float32", "compute"] = "float32"  # compute: the router multiplies in compute dtype; scores are float32 anyway
    router_affinity: Literal["sigmoid", "softmax"] = "sigmoid"  # of a score: by itself, or among all experts of its token
    router_renormalize: bool = True  # a token's combine weights sum to router_combine_scale; False: each is the scale times its affinity
    router_combine_scale: float = Field(default=2.5, gt=0)
    router_balancing: Literal["none", "quantile"] = "quantile"  # how the selection bias of the next step is found
    router_quantile: Literal["exact", "histogram"] = "exact"  # histogram adds over shards in one reduction of experts x bins counts
    router_histogram_bins: int = Field(default=1000, ge=2)  # histogram only: from 1,000 on it can't be told from exact

    capacity_factor: float | None = Field(default=None, gt=0)  # rows an expert keeps, over its fair share; None: dropless
    capacity_shards: int = Field(default=1, ge=1)  # pieces of a batch that count their capacity apart, as devices that exchange tokens do

    window_tokens: int | None = Field(default=2048, ge=1)  # keys a query of a windowed layer sees, itself included; None: all layers global
    global_every: int | None = Field(default=4, ge=1)  # every n-th layer and the last one are global; None: no layer is
    rope_layers: Literal["windowed", "all"] = "windowed"  # windowed: global layers carry no rotation (NoPE)
    rope_pairing: Literal["halves", "interleaved"] = (
        "halves"  # channel i turns with i + rotated / 2, or 2i with 2i + 1; weights don't fit both
    )
    rope_theta: float = Field(default=10_000.0, gt=1)
    rope_fraction: float = Field(default=0.5, ge=0, le=1)  # share of a head's channels that turn
    partial_key_offset: bool = False  # on global layers the upper half of a key's channels is the previous token's

    qk_norm: bool = True
    qk_norm_eps: float = Field(default=1e-6, gt=0)
    qk_scale: float = Field(default=1.3, gt=0)  # multiplies q on top of 1/sqrt(head_dim); the knob of a context extension
    attention_gate: bool = False  # a head's output times 2 sigmoid(x Wg)
    exclusive_attention: bool = False  # a head's output loses its component along the token's own value
    convolution_taps: int = Field(default=0, ge=0)  # of a depthwise causal convolution that starts as identity; 0: none
    convolution_sites: tuple[ConvolutionSite, ...] = ("key", "attention", "moe")

    norm_eps: float = Field(default=1e-5, gt=0)
    norm_gate_rank: int = Field(default=0, ge=0)  # rank of the self-gate behind every norm; 0: no gate
    tied_head: bool = False  # the output projection is the embedding, transposed
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
        if self.partial_key_offset and self.head_dim % 2:
            raise ValueError(f"partial_key_offset moves half of a key, but head_dim = {self.head_dim} is odd")
        return self

    @model_validator(mode="after")
    def _experts_fit(self) -> Self:
        if self.experts_per_token > self.experts:
            raise ValueError(f"experts_per_token = {self.experts_per_token} exceeds experts = {self.experts}")
        if self.router_balancing == "quantile" and self.experts_per_token == self.experts:
            raise ValueError("router_balancing = 'quantile' needs an expert that is not chosen; with all chosen set it to 'none'")
        if self.layers % self.expert_tying_layers:
            raise ValueError(
                f"expert_tying_layers = {self.expert_tying_layers} doesn't divide layers = {self.layers}; every bank serves equally many"
            )
        if self.shared_expert_width and not self.shared_experts:
            raise ValueError(
                f"shared_experts = 0 with shared_expert_width = {self.shared_expert_width}; set the width to 0 to have no shared expert"
            )
        return self

    @model_validator(mode="after")
    def _positions_are_visible(self) -> Self:
        if self.rotated_channels and not any(self.rotates(layer) for layer in range(self.layers)):
            raise ValueError("every layer is global and rope_layers = 'windowed', so no layer sees positions; set rope_layers = 'all'")
        if self.window_tokens is None and self.global_every is None:
            raise ValueError("global_every = None makes every layer windowed, but window_tokens is None; give the window")
        if self.convolution_taps and not self.convolution_sites:
            raise ValueError(f"convolution_taps = {self.convolution_taps} with no convolution_sites; name one, or set the taps to 0")
        if len(set(self.convolution_sites)) < len(self.convolution_sites):
            raise ValueError(f"convolution_sites = {self.convolution_sites} names a site twice")
        return self

    @property
    def rotated_channels(self) -> int:
        return round(self.head_dim * self.rope_fraction)

    @property
    def expert_input_width(self) -> int:
        """Width of what a routed expert reads and writes."""
        return self.width if self.latent_width is None else self.latent_width

    @property
    def shared_width(self) -> int:
        """Hidden width of all shared experts together."""
        return self.shared_experts * self.shared_expert_width

    @property
    def banks(self) -> int:
        """Banks of routed experts; layer i uses bank i // expert_tying_layers."""
        return self.layers // self.expert_tying_layers

    @property
    def dropless(self) -> "ModelConfig":
        """The same model without a capacity: what its scores are reported for, whatever it was trained under."""
        return self.model_copy(update={"capacity_factor": None})

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

    def convolves(self, site: ConvolutionSite) -> bool:
        """Whether a short convolution runs over this site."""
        return self.convolution_taps > 0 and site in self.convolution_sites
