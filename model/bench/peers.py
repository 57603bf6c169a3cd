"""The peers' side of the bench. Runs in an environment of its own, where Seaway's dependencies are not installed.

.venv-peers-model/bin/python -m model.bench.peers CANDIDATE SHAPE [--real-time]

SHAPE is JSON. Says one line of JSON when it is ready, then one for every line it reads, after one update on the same batch.
"""

import importlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Advance = Callable[[], float]
"""One update; returns the loss before it."""

LEARNING_RATE, BETAS, EPS, DECAY = 3e-4, (0.9, 0.999), 1e-8, 1e-4  # optax.adamw's, so torch's are set to them


def batch_of(shape: dict[str, int]) -> tuple[Any, Any]:
    """Inputs and targets [sequences, tokens]: the tokens of `measure.batch_of`."""
    size = (shape["batch_sequences"], shape["sequence_tokens"] + 1)
    ids = np.random.default_rng(0).integers(0, shape["vocab_size"], size, dtype=np.int32)
    return ids[:, :-1], ids[:, 1:]


def olmoe(shape: dict[str, int], experts: str) -> tuple[Advance, int]:
    """OLMoE of transformers on torch, with its fused AdamW and the attention of torch."""
    torch, transformers = (importlib.import_module(name) for name in ("torch", "transformers"))

    torch.manual_seed(0)
    config = transformers.OlmoeConfig(
        vocab_size=shape["vocab_size"],
        hidden_size=shape["width"],
        intermediate_size=shape["expert_width"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_experts=shape["experts"],
        num_experts_per_tok=shape["experts_per_token"],
        max_position_embeddings=shape["sequence_tokens"],
        initializer_range=0.5 / shape["width"] ** 0.5,
        norm_topk_prob=True,
        use_cache=False,
        eos_token_id=None,
        attn_implementation="sdpa",
        experts_implementation=experts,
    )
    model = transformers.OlmoeForCausalLM(config).float().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=BETAS, eps=EPS, weight_decay=DECAY, fused=True)
    tokens, targets = (torch.from_numpy(a.astype(np.int64)) for a in batch_of(shape))

    def advance() -> float:
        logits = model(input_ids=tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    return advance, sum(p.numel() for p in model.parameters())


def levanter(shape: dict[str, int]) -> tuple[Advance, int]:
    """Mixtral of levanter on haliax: nothing recomputed, no balancing loss, and the initial weights that the others start with.

    By itself it starts the embedding at 1 / width, eight times below them, and all other matrices twice above: the same AdamW then
    memorises the batch several times as fast. What still differs: its loss has no target for a row's last position (511 of 512).
    """
    import jax
    import jax.numpy as jnp
    import optax

    equinox, haliax, lm_model, mixtral = (
        importlib.import_module(name) for name in ("equinox", "haliax", "levanter.models.lm_model", "levanter.models.mixtral")
    )

    config = mixtral.MixtralConfig(
        max_seq_len=shape["sequence_tokens"],
        hidden_dim=shape["width"],
        intermediate_dim=shape["expert_width"],
        num_layers=shape["layers"],
        num_heads=shape["heads"],
        num_kv_heads=shape["heads"],
        initializer_range=0.5 / shape["width"] ** 0.5,
        num_experts_per_tok=shape["experts_per_token"],
        n_routed_experts=shape["experts"],
        lbl_coef=None,
        rzl_coef=None,
        gradient_checkpointing=False,
        use_flash_attention=False,
    )
    vocabulary, rows = haliax.Axis("vocab", shape["vocab_size"]), haliax.Axis("batch", shape["batch_sequences"])
    position = config.max_Pos.resize(shape["sequence_tokens"])
    tokens, _ = batch_of(shape)  # its loss shifts the tokens itself
    optimizer = optax.adamw(LEARNING_RATE)
    weight = haliax.named(jnp.ones((rows.size, position.size)), (rows, position))
    example = lm_model.LmExample(tokens=haliax.named(jnp.asarray(tokens), (rows, position)), loss_weight=weight)  # causal by default
    automatic = (jax.sharding.AxisType.Auto,) * 3
    jax.set_mesh(
        jax.make_mesh((1, 1, 1), ("replica", "data", "model"), axis_types=automatic)
    )  # its experts are mapped over one device, too

    def step(model: Any, moments: Any) -> Any:
        loss, gradient = equinox.filter_value_and_grad(lambda m: m.compute_next_token_loss(example, key=None).scalar())(model)
        updates, moments = optimizer.update(gradient, moments, equinox.filter(model, equinox.is_inexact_array))
        return equinox.apply_updates(model, updates), moments, loss

    def drawn(array: Any, key: Any) -> Any:
        if not equinox.is_inexact_array(array) or bool(jnp.all(array == 1)):  # gains of norms start at 1 everywhere
            return array
        return jax.random.truncated_normal(key, -3, 3, array.shape) * (0.5 / shape["width"] ** 0.5)

    model = equinox.filter_jit(lambda key: mixtral.MixtralLMHeadModel.init(vocabulary, config, key=key))(jax.random.key(0))
    leaves, structure = jax.tree.flatten(model)
    model = jax.tree.unflatten(
        structure, [drawn(*pair) for pair in zip(leaves, jax.random.split(jax.random.key(1), len(leaves)), strict=True)]
    )
    parameters = sum(a.size for a in jax.tree.leaves(equinox.filter(model, equinox.is_inexact_array)))
    compiled = equinox.filter_jit(step, donate="all")
    state: list[Any] = [model, optimizer.init(equinox.filter(model, equinox.is_inexact_array))]
    del model

    def advance() -> float:
        state[0], state[1], loss = compiled(state[0], state[1])
        jax.block_until_ready((state[0], state[1]))
        return float(loss)

    return advance, parameters


def raise_threads() -> None:
    """Put every thread of this process into the kernel's real-time class: nearly an idle machine, where a busy one can't be had."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setscheduler(int(thread), os.SCHED_RR, os.sched_param(10))


CANDIDATES: dict[str, tuple[Callable[[dict[str, int]], tuple[Advance, int]], tuple[str, ...]]] = {
    "olmoe-eager": (lambda shape: olmoe(shape, "eager"), ("torch", "transformers")),
    "olmoe-grouped": (lambda shape: olmoe(shape, "grouped_mm"), ("torch", "transformers")),
    "levanter": (levanter, ("marin-levanter", "jax")),
}


def main(candidate: str, shape: dict[str, int], real_time: bool) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print; answers stay alone
    build, packages = CANDIDATES[candidate]
    started = time.perf_counter()
    advance, parameters = build(shape)
    if real_time and "torch" in packages:  # its threads spin where they wait, which other work drags out to a minute
        raise_threads()
    loss = advance()
    ready_s = time.perf_counter() - started
    if real_time:
        raise_threads()  # those that the first update started, too; it may have compiled, which needn't hurry
    advance()  # pages that the first update freed are asked for again
    versions = {name: importlib.metadata.version(name) for name in packages}
    print(json.dumps({"ready_s": ready_s, "parameters": parameters, "loss": loss, "versions": versions}), file=answers)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        loss = advance()
        print(json.dumps({"step_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu, "loss": loss}), file=answers)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), "--real-time" in sys.argv[3:])
