"""An independent forward pass: numpy, float64, one token and one expert at a time, written from the equations."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.architecture import ModelConfig
from model.parameters import BANK

Floats = NDArray[np.float64]


def hidden_states(
    params: Any, router_bias: Floats, config: ModelConfig, tokens: NDArray[np.int32], segment_ids: NDArray[np.int32]
) -> Floats:
    """Final hidden states [batch, tokens, width] of packed documents."""
    wide = _float64(params)
    return np.stack([_row(wide, router_bias, config, row, ids) for row, ids in zip(tokens, segment_ids, strict=True)])


def nats(params: Any, router_bias: Floats, config: ModelConfig, tokens: Any, segment_ids: Any, targets: Any) -> Floats:
    """Negative log-likelihood of each target [batch, tokens]."""
    head = np.asarray(params["embedding"], np.float64).T if config.tied_head else np.asarray(params["head"], np.float64)
    logits = hidden_states(params, router_bias, config, tokens, segment_ids) @ head
    log_partition = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
    return np.asarray(log_partition - np.take_along_axis(logits, targets[..., None], -1)[..., 0])


def _row(params: Any, router_bias: Floats, config: ModelConfig, tokens: Any, segment_ids: Any) -> Floats:
    x = _norm(params["embedding"][tokens], params["embedding_norm"], config)
    for layer in range(config.layers):
        weights = {"attention": _at(params["layers"]["attention"], layer)}
        weights["moe"] = _at({name: leaf for name, leaf in params["layers"]["moe"].items() if name not in BANK}, layer)
        x = x + _attention(_norm(x, weights["attention"]["norm"], config), weights["attention"], config, layer, segment_ids)
        u = _norm(x, weights["moe"]["norm"], config)
        bank = {name: params["layers"]["moe"][name][layer // config.expert_tying_layers] for name in BANK}
        mixed = _moe(u, weights["moe"] | bank, router_bias[layer], config, segment_ids >= 0)
        x = x + _convolved(mixed, weights["moe"], "moe", config, segment_ids)
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
    keys = _convolved(x @ weights["key"], weights, "key", config, segment_ids)
    gates = 2 * _sigmoid(x @ weights["gate"]) if config.attention_gate else np.ones((tokens, config.heads))
    for head in range(config.heads):
        own, shared = _columns(head, config), _columns(head // group, config)
        q, k, v = x @ weights["query"][:, own], keys[:, shared], x @ weights["value"][:, shared]
        if config.partial_key_offset and is_global:
            k = _offset(k, segment_ids)
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
    return _convolved(out.reshape(tokens, -1) @ weights["output"], weights, "attention", config, segment_ids)


def _convolved(x: Floats, weights: Any, site: Any, config: ModelConfig, segment_ids: Any) -> Floats:
    if not config.convolution_taps or site not in config.convolution_sites:
        return np.asarray(x)
    y = np.zeros_like(x)
    for t in range(len(x)):
        for back in range(min(config.convolution_taps, t + 1)):
            if segment_ids[t - back] == segment_ids[t]:
                y[t] += weights[f"{site}_taps"][back] * x[t - back]
    return y


def _offset(k: Floats, segment_ids: Any) -> Floats:
    half, moved = k.shape[1] // 2, k.copy()
    for t in range(len(k)):
        inside = t > 0 and segment_ids[t - 1] == segment_ids[t]
        moved[t, half:] = k[t - 1, half:] if inside else 0.0
    return moved


def _turned(x: Floats, position: int, config: ModelConfig) -> Floats:
    pairs = round(config.head_dim * config.rope_fraction) // 2
    turned = x.copy()
    for i in range(pairs):
        first, second = (i, i + pairs) if config.rope_pairing == "halves" else (2 * i, 2 * i + 1)
        angle = position * config.rope_theta ** (-i / pairs)
        turned[first] = x[first] * np.cos(angle) - x[second] * np.sin(angle)
        turned[second] = x[first] * np.sin(angle) + x[second] * np.cos(angle)
    return turned


def _moe(u: Floats, weights: Any, bias: Floats, config: ModelConfig, is_token: Any) -> Floats:
    """Tokens in turn; an expert of a piece of the batch that is full takes no more."""
    tokens = len(u)
    piece, rows = -(-tokens // config.capacity_shards), np.inf
    if config.capacity_factor is not None:
        rows = np.ceil(config.capacity_factor * piece * config.experts_per_token / config.experts)
    taken: dict[tuple[int, int], int] = {}
    y = np.zeros_like(u)
    for t in range(tokens):
        scores = u[t] @ weights["router"]
        chosen = np.argsort(-(scores + bias), kind="stable")[: config.experts_per_token]
        affinity = _sigmoid(scores) if config.router_affinity == "sigmoid" else np.exp(scores) / np.exp(scores).sum()
        share = affinity[chosen] * config.router_combine_scale
        if config.router_renormalize:
            share = share / affinity[chosen].sum()
        r = u[t]
        if config.latent_width:
            r = r @ weights["latent_down"]
            if config.latent_norm:
                r = r / np.sqrt((r**2).mean() + config.norm_eps) * weights["latent_gain"]
        routed = np.zeros_like(r)
        for s, e in zip(share, chosen, strict=True):
            if config.capacity_factor is not None:
                cell = (t // piece, int(e))
                if not is_token[t] or taken.get(cell, 0) >= rows:
                    continue
                taken[cell] = taken.get(cell, 0) + 1
            routed = routed + s * _swiglu(r, *(weights[f"expert_{part}"][e] for part in ("gate", "up", "down")))
        y[t] = routed @ weights["latent_up"] if config.latent_width else routed
        for n in range(config.shared_experts if config.shared_expert_width else 0):
            y[t] += _swiglu(u[t], *(weights[f"shared_{part}"][n] for part in ("gate", "up", "down")))
    return y


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
