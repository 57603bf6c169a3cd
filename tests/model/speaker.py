"""A tiny model that speaks: a released folder with random weights and a tokenizer of single bytes and a few words."""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer, trainers

from model.architecture import ModelConfig
from model.arrays import encode
from model.export import CONFIG, WEIGHTS, release_arrays, release_config
from model.parameters import Params, init
from model.state import to_arrays
from ops.tokenizer import END_OF_TEXT_ID, SPECIALS, untrained
from tests.model.learner import CHEAP, variant

VOCABULARY = 300
CONTEXT_TOKENS = 128
SPEAKER: ModelConfig = variant(vocab_size=VOCABULARY, kernels=CHEAP)


@functools.cache
def weights(config: ModelConfig) -> Params:
    """Random weights by numpy: nothing is compiled for them. Gains lie around one."""
    draw = np.random.default_rng(0)

    def leaf(path: tuple[Any, ...], shape: jax.ShapeDtypeStruct) -> jax.Array:
        values = draw.normal(0, 0.25, shape.shape).astype(np.float32)
        return jnp.asarray(values + 1 if "norm" in jax.tree_util.keystr(path) else values)

    made: Params = jax.tree_util.tree_map_with_path(leaf, jax.eval_shape(lambda: init(config, 0)))
    return made


@functools.cache
def bias(config: ModelConfig) -> jax.Array:
    return jnp.asarray(np.random.default_rng(1).normal(0, 0.1, (config.layers, config.experts)).astype(np.float32))


def byte_tokenizer(vocab_size: int = VOCABULARY) -> Tokenizer:
    """Specials, all bytes, and as many words as fit."""
    from tokenizers import pre_tokenizers

    tokenizer = untrained()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the tide comes in and the tide goes out, and the sea is the sea"] * 4, trainer=trainer)
    tokenizer.encode_special_tokens = True
    return tokenizer


def write_speaker(folder: Path) -> Path:
    """The folder of a release, as `model.release` writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = release_arrays(to_arrays(weights(SPEAKER)), np.asarray(bias(SPEAKER)))
    (folder / WEIGHTS).write_bytes(encode(arrays))
    config = release_config(SPEAKER, context_tokens=CONTEXT_TOKENS, end_of_text_id=END_OF_TEXT_ID, pad_id=1)
    (folder / CONFIG).write_text(json.dumps(config))
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return folder
