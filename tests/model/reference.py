"""An independent forward pass: numpy, float64, one token and one expert at a time, written from the equations."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import ModelConfig

Floats = NDArray[np.float64]


def hidden_states(
    params: Any, router_bias: Floats, config: ModelConfig, tokens: NDArray[np.int32], segment_ids: NDArray[np.int32]
) -> Floats:
    """Final hidden states [batch, tokens, width] of packed documents."""
    wide = _float64(params)
    return np.stack([_row(wide, router_bias, config, row, ids) for row, ids in zip(tokens, segment_ids, strict=True)])


def nats(params: Any, router_bias: Floats, config: ModelConfig, tokens: Any, segment_ids: Any, targets: Any) -> Floats:
    """Negative log-likelihood of each target [batch, tokens]."""
    logits = hidden_states(params, router_bias, config, tokens, segment_ids) @ np.asarray(params["head"], np.float64)
    log_partition = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
    return np.asarray(log_partition - np.take_along_axis(logits, targets[..., None], -1)[..., 0])


def _row(params: Any, router_bias: Floats, config: ModelConfig, tokens: Any, segment_ids: Any) -> Floats:
    x = _norm(params["embedding"][tokens], params["embedding_norm"], config)
    for layer in range(config.layers):
        weights = _at(params["layers"], layer)
        x = x + _attention(_norm(x, weights["attention"]["norm"], config), weights["attention"], config, layer, segment_ids)
        u = _norm(x, weights["moe"]["norm"], config)
        x = x + np.stack([_moe(token, weights["moe"], router_bias[layer], config) for token in u])
    return _norm(x, params["final_norm"], config)


def _norm(x: Floats, weights: Any, config: ModelConfig) -> Floats:
    y = x / np.sqrt((x**2).mean(-1, keepdims=True) + config.norm_eps) * weights["gain"]
    if "gate_down" in weights:
        y = y * _sigmoid(_silu(y @ weights["gate_down"]) @ weights["gate_up"])
    return np.asarray(y)


def _attention(x: Floats, weights: Any, config: ModelConfig, layer: int, segment_ids: Any) -> Floats:
    tokens, group = len(x), config.heads // config.kv_heads
    cadence = config.global_every is not None and ((layer + 1) % config.global_every == 0 or layer == config.layers - 1)
    window = None if cadence else config.window_tokens
    is_global = window is None
    out = np.zeros((tokens, config.heads, config.head_dim))
    gates = 2 * _sigmoid(x @ weights["gate"]) if config.attention_gate else np.ones((tokens, config.heads))
    for head in range(config.heads):
        own, shared = _columns(head, config), _columns(head // group, config)
        q, k, v = x @ weights["query"][:, own], x @ weights["key"][:, shared], x @ weights["value"][:, shared]
        if config.qk_norm:
            q, k = (a / np.sqrt((a**2).mean(-1, keepdims=True) + config.qk_norm_eps) for a in (q, k))
        if not is_global or config.rope_layers == "all":
            q, k = (np.stack([_turned(a[t], t, config) for t in range(tokens)]) for a in (q, k))
        for t in range(tokens):
            first = 0 if window is None else max(0, t - window + 1)
            seen = [s for s in range(first, t + 1) if segment_ids[s] == segment_ids[t]]
            scores = np.array([q[t] @ k[s] for s in seen]) * config.qk_scale / np.sqrt(config.head_dim)
            probabilities = np.exp(scores - scores.max())
            y = (probabilities / probabilities.sum()) @ v[seen]
            if config.exclusive_attention:
                y = y - (y @ v[t]) / (v[t] @ v[t] + 1e-6) * v[t]
            out[t, head] = gates[t, head] * y
    return np.asarray(out.reshape(tokens, -1) @ weights["output"])


def _turned(x: Floats, position: int, config: ModelConfig) -> Floats:
    pairs = round(config.head_dim * config.rope_fraction) // 2
    turned = x.copy()
    for i in range(pairs):
        angle = position * config.rope_theta ** (-i / pairs)
        turned[i] = x[i] * np.cos(angle) - x[i + pairs] * np.sin(angle)
        turned[i + pairs] = x[i] * np.sin(angle) + x[i + pairs] * np.cos(angle)
    return turned


def _moe(x: Floats, weights: Any, bias: Floats, config: ModelConfig) -> Floats:
    scores = x @ weights["router"]
    chosen = np.argsort(-(scores + bias), kind="stable")[: config.experts_per_token]
    share = _sigmoid(scores[chosen]) / _sigmoid(scores[chosen]).sum() * config.router_combine_scale
    y = sum(s * _swiglu(x, *(weights[f"expert_{part}"][e] for part in ("gate", "up", "down"))) for s, e in zip(share, chosen, strict=True))
    if config.shared_expert_width:
        y = y + _swiglu(x, weights["shared_gate"], weights["shared_up"], weights["shared_down"])
    return np.asarray(y)


def _swiglu(x: Floats, gate: Floats, up: Floats, down: Floats) -> Floats:
    return np.asarray((_silu(x @ gate) * (x @ up)) @ down)


def _columns(head: int, config: ModelConfig) -> slice:
    return slice(head * config.head_dim, (head + 1) * config.head_dim)


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)))


def _silu(x: Floats) -> Floats:
    return x * _sigmoid(x)


def _float64(tree: Any) -> Any:
    return {k: _float64(v) for k, v in tree.items()} if isinstance(tree, dict) else np.asarray(tree, np.float64)


def _at(tree: Any, layer: int) -> Any:
    return {k: _at(v, layer) for k, v in tree.items()} if isinstance(tree, dict) else tree[layer]
