"""Vocabularies at equal compute."""

import math
from pathlib import Path

import numpy as np
import pytest

from infra.artifacts.artifact import Artifact
from ops.config import CompareTokenizersConfig, PruneTokenizerConfig
from ops.tokenizer_compare import bits_per_byte, compare_tokenizers, fit_power_law, train_flops_per_token
from ops.tokenizer_prune import prune_tokenizer
from tests.builders import run_program
from tests.ops.conftest import CORPUS
from tests.ops.normalized import normalized

BUDGETS = (1_000, 2_000, 4_000, 8_000)


def compare(directory: Path, tokenizer_artifact: Artifact, **config: object) -> Artifact:
    tokenizers = {
        f"v{size}": run_program(
            prune_tokenizer, PruneTokenizerConfig(vocab_size=size), directory / f"v{size}", tokenizer=tokenizer_artifact
        )
        for size in (258, 400, 430)
    }
    source = normalized(directory / "in", CORPUS, held_out=CORPUS[::5], shards=2)
    settings = CompareTokenizersConfig.model_validate({"train_bytes": BUDGETS, **config})
    return run_program(compare_tokenizers, settings, directory / "out", normalized={"prose": source}, tokenizers=tokenizers)


def test_each_vocabulary_is_measured_on_the_same_text(tmp_path: Path, tokenizer_artifact: Artifact) -> None:
    result = compare(tmp_path, tokenizer_artifact)
    found = result.stats["tokenizers"]
    assert [found[name]["vocab_size"] for name in ("v258", "v400", "v430")] == [258, 400, 430]
    assert found["v258"]["bytes_per_token"] == 1.0
    assert found["v258"]["bytes_per_token"] < found["v400"]["bytes_per_token"] < found["v430"]["bytes_per_token"]
    for one in found.values():
        assert one["train_bytes"] == found["v258"]["train_bytes"]
        assert one["bits_per_byte"][0] > one["bits_per_byte"][1] > one["bits_per_byte"][-1]  # more text, fewer bits
        assert 0 < one["flop_equivalent_bits_per_byte"] < 8
    assert found["v258"]["relative"] == 0
    assert result.read_json("comparison.json") == result.stats


def test_a_wide_vocabulary_loses_where_its_output_matrix_is_the_cost(tmp_path: Path, tokenizer_artifact: Artifact) -> None:
    cheap = compare(tmp_path / "cheap", tokenizer_artifact, body_parameters=10**9, width=1).stats["tokenizers"]["v430"]
    dear = compare(tmp_path / "dear", tokenizer_artifact, body_parameters=1, width=10**6).stats["tokenizers"]["v430"]
    assert dear["bits_per_byte"] == cheap["bits_per_byte"]
    assert dear["relative"] > cheap["relative"]


def test_an_unknown_reference_is_refused(tmp_path: Path, tokenizer_artifact: Artifact) -> None:
    with pytest.raises(ValueError, match="'gpt' is none of v258, v400, v430"):
        compare(tmp_path, tokenizer_artifact, reference="gpt")


def test_the_fit_finds_a_planted_law() -> None:
    x = np.array([1e12, 2e12, 4e12, 8e12, 3e13])
    law = fit_power_law(x.tolist(), (40 * x**-0.12 + 0.7).tolist())
    assert [law.scale, law.exponent, law.floor] == pytest.approx([40, 0.12, 0.7], rel=0.02)
    assert law(1e14) == pytest.approx(40 * 1e14**-0.12 + 0.7, rel=1e-3)


def test_two_points_are_no_law() -> None:
    with pytest.raises(ValueError, match="needs three budgets, not 2"):
        fit_power_law([1, 2], [3, 2])


def test_units() -> None:
    assert bits_per_byte(8 * math.log(2) * 10, 10) == pytest.approx(8)
    assert train_flops_per_token(100, 10, 5) == 6 * 150
