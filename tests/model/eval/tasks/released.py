"""A release that is made in a second: a tiny model with random weights, and a vocabulary learnt from a few sentences."""

import json
from pathlib import Path

import jax
import numpy as np
import yaml
from numpy.typing import NDArray
from tokenizers import pre_tokenizers, trainers

from model.architecture import ModelConfig
from model.arrays import encode
from model.export import CONFIG, WEIGHTS, release_arrays, release_config
from model.parameters import Params, declare
from model.presets import tiny_model
from model.state import to_arrays
from ops.tokenizer import SPECIALS, untrained

SENTENCES = (
    "Question: which of these is a bird? Answer: a duck. The duck swims on a pond and lays one egg a day. #### 12\n",
    "She sells 3 eggs for 4 dollars each, so she has 3 * 4 = 12 dollars. The answer is 12. Ümlaut, 東京, 🦆\n",
)
CONTEXT_TOKENS = 96
MODEL = tiny_model().model_copy(update={"vocab_size": 330})  # one shape for all tests, which compile it once


def weights(model: ModelConfig, seed: int) -> tuple[Params, NDArray[np.float32]]:
    """Parameters and router bias by numpy alone: initialising would compile. Logits come out large, so that no two likeliest tokens tie."""
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda leaf: rng.normal(0.0, 0.3, leaf.shape).astype(np.float32), declare(model))
    return params, rng.normal(size=(model.layers, model.experts)).astype(np.float32)


def release(folder: Path, *, seed: int = 5, vocabulary: int = 330) -> Path:
    """Write a released folder; its tokenizer has `vocabulary` tokens, and its model room for as many and more."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = untrained()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES * 4, trainer=trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    params, bias = weights(MODEL, seed)
    (folder / WEIGHTS).write_bytes(encode(release_arrays(to_arrays(params), bias)))
    (folder / CONFIG).write_text(json.dumps(release_config(MODEL, context_tokens=CONTEXT_TOKENS, end_of_text_id=0, pad_id=1)))
    return folder


def choice_task(folder: Path, documents: list[dict[str, object]], **fields: object) -> Path:
    """A multiple-choice task file with its data."""
    values: dict[str, object] = {
        "task": "birds",
        "output_type": "multiple_choice",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": "birds.jsonl"}},
        "test_split": "test",
        "doc_to_text": "Question: {{query}}\nAnswer:",
        "doc_to_choice": "choices",
        "doc_to_target": "gold",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    }
    return written(folder, "birds", documents, {**values, **fields})


def answer_task(folder: Path, documents: list[dict[str, object]], **fields: object) -> Path:
    """A generation task file with its data, graded strictly and flexibly as GSM8K is."""
    values: dict[str, object] = {
        "task": "eggs",
        "output_type": "generate_until",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": "eggs.jsonl"}},
        "doc_to_text": "Question: {{question}}\nAnswer:",
        "doc_to_target": "{{answer.split('####')[-1].strip()}}",
        "generation_kwargs": {"until": ["Question:", "\n\n"], "max_gen_toks": 40},
        "filter_list": [
            {
                "name": "strict-match",
                "filter": [{"function": "regex", "regex_pattern": r"#### (\-?[0-9\.\,]+)"}, {"function": "take_first"}],
            },
            {
                "name": "flexible-extract",
                "filter": [
                    {"function": "regex", "regex_pattern": r"(-?[$0-9.,]{2,})|(-?[0-9]+)", "group_select": -1},
                    {"function": "take_first"},
                ],
            },
        ],
        "metric_list": [{"metric": "exact_match", "ignore_case": True, "regexes_to_ignore": [",", r"\$", r"\.$"]}],
    }
    return written(folder, "eggs", documents, {**values, **fields})


def written(folder: Path, name: str, documents: list[dict[str, object]], values: dict[str, object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.jsonl").write_bytes(b"".join(json.dumps(document).encode() + b"\n" for document in documents))
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path


ODD = "a\u2028b\u2029c\u0085d\u000be\u000cf 🦆 \ud800 g"
"""Text that has broken an evaluation before: line ends that are no LF, an astral character, an unpaired surrogate."""

BIRDS: list[dict[str, object]] = [
    {"id": "a", "query": "which of these is a bird?", "choices": ["duck", "pond"], "gold": 0},
    {"id": "b", "query": "what does it swim on?", "choices": ["an egg", "a day", "a pond, of course"], "gold": 2},
    {"id": "c", "query": ODD, "choices": ["東京", "🦆", "dollars"], "gold": 1},
    {"id": "d", "query": "She sells 3 eggs for 4 dollars each, so she has how many? " * 6, "choices": ["twelve", "4 eggs"], "gold": 0},
    {"id": "e", "query": "A or B", "choices": ["A", "B"], "gold": 1},
]
EGGS: list[dict[str, object]] = [
    {"question": "3 eggs for 4 dollars?", "answer": "3 * 4 = 12\n#### 12"},
    {"question": ODD, "answer": "#### 1,000"},
    {"question": "She sells one egg. " * 30, "answer": "#### 1"},
]
