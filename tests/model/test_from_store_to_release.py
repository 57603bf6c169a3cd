"""The learner's half of the lineage, end to end, on real arrays."""

import json
import math
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Tokenizer

from infra.artifacts.artifact import Artifact
from model.config import EvaluateConfig
from model.eval.report import Evaluation
from model.finish import read_model
from model.load import load_release, logits, next_token_logits
from model.run import read_run
from model.state import same
from model.tracker import read_rows
from ops.cache import held_out_documents
from tests.model.corpus import VOCAB
from tests.model.journey import HERO, Journey


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Journey:
    return Journey.begin(tmp_path_factory.mktemp("journey"))


@pytest.fixture(scope="module")
def evaluations(journey: Journey, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    directory = tmp_path_factory.mktemp("evaluation")
    checkpoints = {"cooldown": journey.cooldown, "hero": journey.hero}
    return {name: journey.evaluated(directory / name, checkpoint) for name, checkpoint in checkpoints.items()}


@pytest.fixture(scope="module")
def released(journey: Journey, evaluations: dict[str, Artifact], tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return journey.released(tmp_path_factory.mktemp("release"), evaluations)


def evaluation_of(artifact: Artifact) -> Evaluation:
    return Evaluation.model_validate(artifact.read_json("evaluation.json"))


def test_the_model_learns_more_than_the_unigram_counts(evaluations: dict[str, Artifact]) -> None:
    for artifact in evaluations.values():
        found = evaluation_of(artifact)
        assert found.model.averages["macro_bits_per_byte"] < found.baselines["unigram"].averages["macro_bits_per_byte"] - 0.2


def test_model_and_baselines_are_scored_on_the_same_documents_tokens_and_bytes(journey: Journey, evaluations: dict[str, Artifact]) -> None:
    found = evaluation_of(evaluations["hero"])
    for domain, row in found.model.domains.items():
        documents = list(held_out_documents(journey.store, domain, HERO.held_out.tokens_per_domain, HERO.held_out.max_document_tokens))
        assert (row.documents, row.tokens) == (len(documents), sum(len(document) - 1 for document in documents))
        for baseline in found.baselines.values():
            other = baseline.domains[domain]
            assert (other.documents, other.tokens, other.bytes) == (row.documents, row.tokens, row.bytes)


def test_bits_per_byte_is_the_sum_of_bits_over_the_sum_of_bytes(evaluations: dict[str, Artifact]) -> None:
    for row in evaluation_of(evaluations["hero"]).model.domains.values():
        assert row.bits_per_byte == pytest.approx(row.nats / math.log(2) / row.bytes)
        assert row.bits_per_byte is not None
        assert row.bits_per_byte_interval is not None
        assert row.bits_per_byte_interval[0] < row.bits_per_byte < row.bits_per_byte_interval[1]


def test_the_hero_is_scored_against_its_prediction_by_the_number_it_logged_itself(
    journey: Journey, evaluations: dict[str, Artifact]
) -> None:
    found = evaluation_of(evaluations["hero"]).prediction
    assert found.score is not None
    with journey.hero.open("evals.jsonl") as stream:
        assert found.score.measured == read_rows(stream)[-1]["macro_nats_per_token"]
    assert found.score.signed_error == found.score.measured - found.score.predicted
    assert found.reason_not_scored is None


def test_the_cooldown_is_not_the_preregistered_run_and_says_so(evaluations: dict[str, Artifact]) -> None:
    found = evaluation_of(evaluations["cooldown"]).prediction
    assert found.score is None
    assert found.reason_not_scored is not None
    assert "a branch that left its parent at step 16" in found.reason_not_scored
    assert found.difference == found.measured - found.predicted


def test_an_evaluation_under_other_settings_does_not_score_the_prediction(journey: Journey, tmp_path: Path) -> None:
    config = EvaluateConfig(held_out=HERO.held_out.model_copy(update={"sequence_tokens": 64}), interval_resamples=10, prompts=())
    found = evaluation_of(journey.evaluated(tmp_path, journey.hero, config)).prediction
    assert found.score is None
    assert "held_out is {'sequence_tokens': 64" in str(found.reason_not_scored)


@pytest.mark.parametrize(("ours", "theirs"), [("tokens_per_domain", "held_out_tokens"), ("max_document_tokens", "max_document_tokens")])
def test_baselines_on_other_tokens_are_refused(journey: Journey, tmp_path: Path, ours: str, theirs: str) -> None:
    held_out = HERO.held_out.model_copy(update={ours: getattr(HERO.held_out, ours) + 1})
    config = EvaluateConfig(held_out=held_out)
    with pytest.raises(ValueError, match=rf"give held_out\.{ours} and the baselines' {theirs} one number"):
        journey.evaluated(tmp_path, journey.hero, config)


def test_samples_continue_their_prompts_in_the_words_of_the_tokenizer(evaluations: dict[str, Artifact]) -> None:
    samples = evaluations["cooldown"].read_json("samples.json")
    assert [sample["prompt"] for sample in samples] == ["aac aad", "aaf"]
    assert all(0 < sample["tokens"] <= 8 or sample["ended"] for sample in samples)
    assert all(len(word) == 3 for sample in samples for word in sample["text"].split())


def test_a_released_model_gives_the_same_bits_of_logits_as_its_checkpoint(journey: Journey, released: Artifact) -> None:
    loaded = load_release(released.local_path("config.json").parent)
    run = read_run(journey.cooldown).run
    params, bias = read_model(journey.cooldown, run)
    tokens = jax.random.randint(jax.random.key(0), (2, 48), 0, VOCAB)
    assert same(logits(loaded, tokens), next_token_logits(params, bias, run.model, tokens, jnp.zeros_like(tokens)))
    assert loaded.config == run.model
    assert not np.all(np.asarray(loaded.router_bias) == 0)


def test_a_release_holds_what_others_need(journey: Journey, released: Artifact) -> None:
    assert set(released.names) == {"README.md", "config.json", "lineage.json", "model.safetensors", "tokenizer.json"}
    with released.open("tokenizer.json") as stream:
        assert Tokenizer.from_str(stream.read().decode()).get_vocab_size() == VOCAB
    config = released.read_json("config.json")
    assert (config["model_type"], config["eos_token_id"], config["pad_token_id"], config["max_position_embeddings"]) == (
        "seaway_moe",
        0,
        1,
        64,
    )


def test_an_equal_release_has_equal_bytes(journey: Journey, evaluations: dict[str, Artifact], released: Artifact, tmp_path: Path) -> None:
    assert journey.released(tmp_path, evaluations).digest == released.digest


def test_the_card_tells_tokens_results_terms_and_lineage(journey: Journey, released: Artifact, evaluations: dict[str, Artifact]) -> None:
    with released.open("README.md") as stream:
        card = stream.read().decode()
    tokens = read_run(journey.cooldown).state.tokens
    code = evaluation_of(evaluations["cooldown"]).model.domains["code"]
    assert code.bits_per_byte is not None
    assert code.bits_per_byte_interval is not None
    for said in (
        f"| Tokens seen | {tokens:,} |",
        f"{code.bits_per_byte:.4f} ({code.bits_per_byte_interval[0]:.4f} to {code.bits_per_byte_interval[1]:.4f})",
        "| code | files | PSF-2.0 | 60 | 48 |",
        "| prose | files | CC0-1.0 | 60 | 48 |",
        "Of 120 extracted and normalised documents",
        f"`{journey.store.manifest.recipe}`",
        f"`{journey.store.digest[:16]}`",
        "no chat template",
        "a branch after 16 updates",
    ):
        assert said in card, said
    assert json.dumps(read_run(journey.cooldown).state.flops_conventions["head"]) == "true"


def test_a_release_without_an_evaluation_of_its_checkpoint_is_refused(
    journey: Journey, evaluations: dict[str, Artifact], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="no evaluation is of the checkpoint"):
        journey.released(tmp_path, {"hero": evaluations["hero"]})


def test_a_release_of_other_sources_than_it_was_trained_on_is_refused(
    journey: Journey, evaluations: dict[str, Artifact], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"raw has sources \['code'\], the store was built from \['code', 'prose'\]"):
        journey.released(tmp_path, evaluations, raw={"code": journey.raw["code"]})


def test_a_tokenizer_of_equal_size_but_other_words_is_refused_where_a_checkpoint_is_scored_and_released(
    journey: Journey, evaluations: dict[str, Artifact], tmp_path: Path
) -> None:
    other = replace(journey.tokenizer, manifest=journey.tokenizer.manifest.model_copy(update={"digest": "u" * 64}))
    mistaken = replace(journey, tokenizer=other)
    with pytest.raises(ValueError, match="tokenizer: it belongs to tokenizer uuuuuuuuuuuu, the checkpoint learnt from tttttttttttt"):
        mistaken.evaluated(tmp_path / "evaluation", journey.hero)
    with pytest.raises(ValueError, match="tokenizer: it belongs to tokenizer uuuuuuuuuuuu, the checkpoint learnt from tttttttttttt"):
        mistaken.released(tmp_path / "release", evaluations)
