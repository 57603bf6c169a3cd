"""The suite as a program: a checkpoint, its tokenizer and a store of real text go in, scores of every slice come out."""

import json
from pathlib import Path

import numpy as np
import pytest

from infra.artifacts.artifact import Artifact
from infra.artifacts.config import identity_of
from infra.artifacts.writer import Writer
from model.arrays import encode
from model.config import LoaderConfig
from model.eval.perplexity.compare import compare_models
from model.eval.perplexity.score import score_text
from model.eval.perplexity.scored import read_documents
from model.finish import MODEL as WEIGHTS
from model.run import CONFIG, FLOPS_CONVENTIONS, STATE, RunState, resolve
from model.state import to_arrays
from ops.decontaminate.config import EvaluationNgramsConfig, EvaluationSet
from ops.decontaminate.index import index_evaluations
from ops.evaluation.perplexity.config import PerplexityConfig, PerplexityGapConfig
from ops.tokenizer import load_tokenizer
from tests.builders import publish, run_program
from tests.model.cells import DATA, tiny_config
from tests.model.eval.tasks.released import CONTEXT_TOKENS, MODEL, SENTENCES, release, weights
from tests.ops.stores import Document, store_of

VOCABULARY = MODEL.vocab_size
BENCHMARK = "Which of the nine ducks on the northern pond laid the two eggs that she sold for eight dollars on the market last week?"
TEXTS = {
    "odd": "a\u2028b\u2029c\u0085d\u000be\u000cf 🦆 g and so on, for some more words",
    "long": SENTENCES[0] * 12,
    "leak": f"{SENTENCES[1]} {BENCHMARK} {SENTENCES[0]}",
}


def checkpoint_of(folder: Path, seed: int) -> Artifact:
    """What a run leaves behind, with random weights."""
    run = resolve(tiny_config(model=MODEL, loader=LoaderConfig(batch_sequences=4, sequence_tokens=CONTEXT_TOKENS)))
    params, bias = weights(run.model, seed)
    out = Writer(str(folder / "attempt"), scratch_url=str(folder / "scratch"))
    state = RunState(step=run.end_step, tokens=1, flops=1.0, flops_conventions=FLOPS_CONVENTIONS, data=DATA)
    out.write_json(CONFIG, identity_of(run))
    out.write_json(STATE, state.model_dump(mode="json"))
    with out.open(WEIGHTS) as stream:
        stream.write(encode(to_arrays({"parameters": params, "router_bias": bias})))
    return publish(folder, out, {})


def tokenizer_of(folder: Path) -> Artifact:
    out = Writer(str(folder / "attempt"), scratch_url=str(folder / "scratch"))
    with out.open("tokenizer.json") as stream:
        stream.write((release(folder / "release", vocabulary=VOCABULARY) / "tokenizer.json").read_bytes())
    return publish(folder, out, {})


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    folder = tmp_path_factory.mktemp("inputs")
    tokenizer = tokenizer_of(folder / "tokenizer")
    spell = load_tokenizer(tokenizer)
    texts = [Document(name, tuple(spell.encode(text).ids), held_out=True) for name, text in TEXTS.items()]
    store = store_of(folder / "store", {"prose": [*texts, Document("train", (5, 6, 7))]}, vocab_size=VOCABULARY)
    (folder / "items.jsonl").write_text(json.dumps({"question": BENCHMARK}) + "\n")
    guarded = EvaluationNgramsConfig(evaluations=(benchmark(folder),), held_out=False)
    index = run_program(index_evaluations, guarded, folder / "index", normalized={})
    return {"tokenizer": tokenizer, "store": store, "evaluation_ngrams": index}


def benchmark(folder: Path) -> EvaluationSet:
    return EvaluationSet(name="ducks", root=str(folder), glob="items.jsonl", fields=("question",))


@pytest.fixture(scope="module")
def scored(inputs: dict[str, Artifact], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    folder = tmp_path_factory.mktemp("scored")
    config = PerplexityConfig(probe_documents=2, min_long_document_bytes=600, batch_tokens=512)
    return {
        name: run_program(score_text, config, folder / name, checkpoint=checkpoint_of(folder / f"{name}-checkpoint", seed), **inputs)
        for name, seed in (("cooldown", 1), ("hero", 2))
    }


def test_every_provider_gives_its_slices_and_every_byte_is_scored(scored: dict[str, Artifact]) -> None:
    documents = list(read_documents(scored["hero"]))
    keys = sorted({one.key for one in documents})
    assert keys[:3] == ["held_out/prose", "long_context/raw", "long_context/retrieval"]
    assert {key.split("/")[1] for key in keys if key.startswith("probe/")} == {"delimiter", "identifier", "machine_record", "patch"}
    for one in documents:
        assert one.byte_nats.sum() == pytest.approx(one.token_nats.sum(), abs=1e-6)
        assert len(one.byte_nats) == len(one.text.encode())
        assert np.all(np.isfinite(one.token_nats))
    assert any(one.text == TEXTS["odd"] for one in documents)


def test_a_benchmark_is_left_out_and_what_is_scored_is_listed_for_training_to_exclude(scored: dict[str, Artifact]) -> None:
    manifest = scored["hero"].read_json("leaks.json")
    assert {(found["key"], found["benchmark"], found["by"]) for found in manifest["left_out"]} == {("held_out/prose", "ducks", "n-grams")}
    documents = list(read_documents(scored["hero"]))
    assert not any(BENCHMARK in one.text for one in documents)
    assert sum(len(hashes) for hashes in manifest["eval_only_sha256"].values()) == len(documents) == scored["hero"].stats["documents"]


def test_two_checkpoints_are_compared_from_their_scores(scored: dict[str, Artifact], tmp_path: Path) -> None:
    found = run_program(compare_models, PerplexityGapConfig(baseline="hero"), tmp_path, perplexity=scored)
    ours, theirs = (scored[name].stats["bits_per_byte"] for name in ("cooldown", "hero"))
    macro = sum(ours[key] - theirs[key] for key in ours) / len(ours)
    assert found.stats["macro_gap"]["cooldown"] == pytest.approx(macro)
    with found.open("report.html") as stream:
        assert b"not measured" in stream.read()  # nobody repeated a run
