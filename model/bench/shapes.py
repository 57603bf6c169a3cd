"""What is measured: shapes, and the sides that compete on each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from model.architecture import ModelConfig
from model.flops import PUBLISHED, FlopConvention
from model.presets import CPU_KERNELS, ladder_model

Optimizer = str
"""`adam`: AdamW on every leaf, as peers are measured. `recipe`: the trainer's own step, Muon on matrices."""

TRIANGLE = FlopConvention(causal="triangle")


@dataclass(frozen=True)
class Side:
    """One way to make the same update.

    Attributes:
        group: sides of a group differ in one choice, which is what the group's name says.
        is_default: what the presets for this kind of machine choose.
        is_lossy: it computes less than the others, so it can't be the default however fast it is.
    """

    name: str
    group: str
    model: ModelConfig
    optimizer: Optimizer = "adam"
    is_default: bool = False
    is_lossy: bool = False


@dataclass(frozen=True)
class Shape:
    """A model and its batch.

    Attributes:
        convention: how its FLOPs are counted.
        published: figures of other programs on this shape, from another run: (who, tokens/s).
    """

    name: str
    model: ModelConfig
    batch_sequences: int
    sequence_tokens: int
    convention: FlopConvention
    sides: tuple[Side, ...]
    published: tuple[tuple[str, float], ...] = ()

    @property
    def tokens(self) -> int:
        return self.batch_sequences * self.sequence_tokens


def small() -> Shape:
    """The shape of two cores: 11.5M parameters, 4.7M active in matmuls."""
    model = ModelConfig(
        vocab_size=8192,
        width=256,
        layers=4,
        heads=4,
        kv_heads=4,
        head_dim=64,
        experts=8,
        experts_per_token=2,
        expert_width=256,
        shared_experts=0,
        shared_expert_width=0,
        window_tokens=None,
        rope_layers="all",
        kernels=CPU_KERNELS,
    )
    published = (
        ("torch OLMoE, eager", 3535),
        ("torch OLMoE, grouped_mm", 3366),
        ("JAX blocked, unrolled, two CPU devices", 2578),
        ("levanter Mixtral", 979),
    )
    return Shape("small", model, 4, 512, TRIANGLE, cpu_sides(model), published)


def cpu_sides(model: ModelConfig) -> tuple[Side, ...]:
    """Every choice of a CPU run, one changed at a time."""
    vary = _varied(model)
    tokens = model.kernels.loss_chunk_tokens
    return (
        Side(f"looped {model.kernels.moe_block_rows} rows", "moe", model, is_default=True),
        Side("looped 128 rows", "moe", vary(moe_block_rows=128)),
        Side("blocked 128 rows", "moe", vary(moe_backend="blocked", moe_block_rows=128)),
        Side("ragged_dot", "moe", vary(moe_backend="ragged")),
        Side("dense", "moe", vary(moe_backend="dense")),
        Side("cells, capacity 1.25", "moe", model.model_copy(update={"capacity_factor": 1.25}), is_lossy=True),
        Side(f"{tokens} tokens", "cross-entropy", model, is_default=True),
        Side("all logits", "cross-entropy", vary(loss_chunk_tokens=2**30)),
        Side("2048 entries", "cross-entropy", vary(loss_blocks="vocabulary", loss_block_vocabulary=2048)),
        Side("triangle", "attention", model, is_default=True),
        Side("library", "attention", vary(attention_backend="library")),
        Side("plain", "attention", vary(attention_backend="plain")),
        Side("projections direct", "attention", vary(weight_gradients="direct")),
        Side("unrolled", "layers", model, is_default=True),
        Side("scan", "layers", vary(layer_loop="scan")),
        Side("float32", "dtype", model, is_default=True),
        Side("bfloat16", "dtype", vary(compute_dtype="bfloat16")),
        Side("AdamW", "optimizer", model, is_default=False),
        Side("Muon and Adam, the trainer's step", "optimizer", model, optimizer="recipe", is_default=True),
    )


def accelerator_shapes() -> tuple[Shape, ...]:
    """Two rungs of the ladder on one device: bfloat16, sequences of 4096 tokens, layers recomputed in the backward pass."""
    published = {768: (("Grug MoE, FSDP, an H100 of 16", 66_700.0),), 1024: (("Grug MoE, FSDP, an H100 of 16", 47_000.0),)}
    return tuple(_accelerator_shape(width, published[width]) for width in (768, 1024))


def _accelerator_shape(width: int, published: tuple[tuple[str, float], ...]) -> Shape:
    base = ladder_model(width)
    model = _varied(base)(moe_backend="blocked", moe_block_rows=128, rematerialize_layers=True)
    vary = _varied(model)
    sides = (
        Side("blocked 128 rows", "moe", model),
        Side("ragged_dot", "moe", vary(moe_backend="ragged"), is_default=True),
        Side("cells, capacity 1.25", "moe", model.model_copy(update={"capacity_factor": 1.25}), is_lossy=True),
        Side("1024 tokens", "cross-entropy", model, is_default=True),
        Side("8192 entries", "cross-entropy", vary(loss_blocks="vocabulary", loss_block_vocabulary=8192)),
        Side("library", "attention", model, is_default=True),
        Side("cudnn", "attention", vary(attention_backend="cudnn")),
    )
    return Shape(f"d{width}", model, 4, 4096, PUBLISHED, sides, published)


def _varied(model: ModelConfig) -> Callable[..., ModelConfig]:
    def vary(**kernels: Any) -> ModelConfig:
        return model.model_copy(update={"kernels": model.kernels.model_copy(update=kernels)})

    return vary
