"""Benchmarks' items are in no slice, whole or in part; what is scored is listed for training to exclude."""

import json
from pathlib import Path

import pytest

from infra.artifacts.artifact import Artifact
from ops.decontaminate.config import EvaluationNgramsConfig, EvaluationSet
from ops.decontaminate.evaluations import EvaluationError, observe
from ops.decontaminate.index import index_evaluations
from ops.evaluation.perplexity.leaks import Leak, item_hashes, without_leaks
from ops.evaluation.perplexity.slices import Slice, SliceError, TextDocument
from tests.builders import run_program

LONG = "A farmer keeps sixteen ducks on the northern pond and sells each of their eggs for two dollars at the old market by the river."
SHORT = "Why is the sky blue?"
CLEAN = "Nothing in this sentence was ever part of a benchmark, and it is long enough to have many n-grams of its own in it."


@pytest.fixture
def guarded(tmp_path: Path) -> tuple[EvaluationSet, Artifact]:
    (tmp_path / "items.jsonl").write_text(json.dumps({"question": LONG}) + "\n" + json.dumps({"question": SHORT}) + "\n")
    found = EvaluationSet(name="ducks", root=str(tmp_path), glob="*.jsonl", fields=("question",))
    index = run_program(index_evaluations, EvaluationNgramsConfig(evaluations=(found,), held_out=False), tmp_path / "index", normalized={})
    return found, index


def kept_and_leaks(guarded: tuple[EvaluationSet, Artifact], **texts: str) -> tuple[list[str], list[Leak]]:
    found, index = guarded
    slices = [Slice("a/b", [TextDocument(name, text) for name, text in texts.items()], "raw", "test")]
    kept, leaks = without_leaks(slices, item_hashes([found]), index, 0.5)
    return [one.name for one in kept[0].documents], leaks


def test_an_item_is_found_whole_by_hash_and_inside_a_document_by_its_n_grams(guarded: tuple[EvaluationSet, Artifact]) -> None:
    kept, leaks = kept_and_leaks(
        guarded, clean=CLEAN, short=f"{CLEAN}\n  WHY is the  sky blue?\n", inside=f"{CLEAN} {LONG} {CLEAN}", whole=LONG
    )
    assert kept == ["clean"]
    assert leaks == [
        Leak("a/b", "short", "ducks", "hash"),
        Leak("a/b", "inside", "ducks", "n-grams"),
        Leak("a/b", "whole", "ducks", "hash"),
    ]


def test_a_slice_that_is_a_benchmark_is_refused(guarded: tuple[EvaluationSet, Artifact]) -> None:
    with pytest.raises(SliceError, match="slice a/b: every document is or holds an item of ducks"):
        kept_and_leaks(guarded, only=LONG)


def test_a_benchmark_that_can_not_be_guarded_fails(guarded: tuple[EvaluationSet, Artifact], tmp_path: Path) -> None:
    found, _ = guarded
    with pytest.raises(EvaluationError, match="no file"):
        item_hashes([found.model_copy(update={"glob": "*.none"})])
    watched = found.model_copy(update={"observed": observe(found)})
    (tmp_path / "items.jsonl").write_text(json.dumps({"question": CLEAN}) + "\n")
    with pytest.raises(EvaluationError, match="changed since this was planned"):
        item_hashes([watched])
