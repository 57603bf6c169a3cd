"""The one place that counts parameters, FLOPs and their utilisation. Every number carries the convention it was made under."""

from dataclasses import dataclass
from typing import Literal

from model.architecture import ModelConfig

BACKWARD_AND_FORWARD = 3  # the backward pass costs two forward passes; recomputed activations are not counted


@dataclass(frozen=True)
class FlopConvention:
    """What is counted. A multiply-add is 2 FLOPs; embeddings, norms and softmaxes' exponentials in hardware terms are 0.

    The defaults are those of published utilisation and training budgets; the sizing heuristic of the same recipe counts
    with head=False and windows=False. Two numbers are comparable only when made under equal conventions.

    Attributes:
        head: count the output projection.
        windows: windowed layers see their window; False: every layer sees the whole sequence.
        causal: rectangle: each query costs all the keys of its range; triangle: only those at or before it.
        gates: count the matmuls of norm and attention gates.
    """

    head: bool = True
    windows: bool = True
    causal: Literal["rectangle", "triangle"] = "rectangle"
    gates: bool = False


PUBLISHED = FlopConvention()
SIZING = FlopConvention(head=False, windows=False)


def train_flops_per_token(config: ModelConfig, sequence_tokens: int, convention: FlopConvention = PUBLISHED) -> float:
    """FLOPs of forward and backward pass per token of a sequence."""
    return BACKWARD_AND_FORWARD * forward_flops_per_token(config, sequence_tokens, convention)


def forward_flops_per_token(config: ModelConfig, sequence_tokens: int, convention: FlopConvention = PUBLISHED) -> float:
    """FLOPs of a forward pass per token of a sequence."""
    attention = sum(_attention_flops(config, layer, sequence_tokens, convention) for layer in range(config.layers))
    head = 2 * config.width * config.vocab_size if convention.head else 0
    gates = _gate_flops(config) if convention.gates else 0
    return config.layers * _matmul_flops_per_layer(config) + attention + head + gates


def model_flops_utilization(tokens_per_s: float, train_flops_per_token: float, devices: int, peak_flops_per_s: float) -> float:
    """Share of the devices' peak that went into counted FLOPs."""
    return tokens_per_s * train_flops_per_token / (devices * peak_flops_per_s)


def _matmul_flops_per_layer(config: ModelConfig) -> int:
    experts = 6 * (config.expert_input_width * config.expert_width * config.experts_per_token + config.width * config.shared_width)
    latent = 4 * config.width * (config.latent_width or 0)
    router = 2 * config.width * config.experts
    projections = 4 * config.width * config.head_dim * (config.heads + config.kv_heads)
    return experts + latent + router + projections


def _attention_flops(config: ModelConfig, layer: int, sequence_tokens: int, convention: FlopConvention) -> float:
    window = config.window(layer) if convention.windows else None
    keys = _mean_keys(sequence_tokens, min(window or sequence_tokens, sequence_tokens), convention)
    scores_and_values = 4 * config.heads * config.head_dim
    softmax = 3 * config.heads
    return keys * (scores_and_values + softmax)


def _mean_keys(sequence_tokens: int, visible: int, convention: FlopConvention) -> float:
    if convention.causal == "rectangle":
        return visible
    growing = visible * (visible + 1) / 2
    return (growing + (sequence_tokens - visible) * visible) / sequence_tokens


def _gate_flops(config: ModelConfig) -> int:
    norms = 2 * config.layers + 2
    attention = 2 * config.width * config.heads * config.layers if config.attention_gate else 0
    return norms * 4 * config.width * config.norm_gate_rank + attention
