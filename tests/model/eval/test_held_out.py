"""Which tokens are scored, and that nothing about batching moves a score."""

import functools
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infra.artifacts.artifact import Artifact
from model.batch import Batch
from model.config import HeldOutConfig
from model.eval.held_out import Drops, HeldOutScorer
from model.eval.scores import DocumentScores
from model.loss import token_nats
from model.parameters import Params, init, init_router_bias
from ops.cache import held_out_documents
from tests.model.learner import CHEAP, variant
from tests.ops.stores import TOKEN_BYTES, Document, store_of

MODEL = variant(kernels=CHEAP)


@pytest.fixture(scope="module")
def store(data: dict[str, Artifact]) -> Artifact:
    return data["store"]


@pytest.fixture(scope="module")
def params() -> Params:
    return init(MODEL, seed=3)


def scored(store: Artifact, params: Params, **config: int) -> dict[str, DocumentScores]:
    settings = {"sequence_tokens": 32, "tokens_per_domain": 300, "batch_sequences": 4} | config
    scorer = scorer_of(store.url, HeldOutConfig(**settings))
    return scorer.score(params, init_router_bias(MODEL), heartbeat=lambda done: None)


@functools.cache
def scorer_of(store_url: str, config: HeldOutConfig) -> HeldOutScorer:
    """One for all tests that score the same text so: it compiles once."""
    return HeldOutScorer(MODEL, Artifact.open_at(store_url), config)


def test_scores_equal_each_document_alone_in_its_own_row(store: Artifact, params: Params) -> None:
    nats_of = jax.jit(lambda batch: token_nats(params, init_router_bias(MODEL), MODEL, batch))
    for domain, scores in scored(store, params, sequence_tokens=64).items():
        for index, document in enumerate(held_out_documents(store, domain, 300, HeldOutConfig().max_document_tokens)):
            length = len(document) - 1
            tokens, targets = (np.zeros((1, 64), np.int32) for _ in range(2))
            tokens[0, :length], targets[0, :length] = document[:-1], document[1:]
            segments = np.where(np.arange(64) < length, 0, -1)[None].astype(np.int32)
            alone = nats_of(Batch(*(jnp.asarray(array) for array in (tokens, targets, segments, segments + 1.0))))
            assert scores.nats[index] == pytest.approx(float(alone[0, :length].sum()), rel=1e-5)


@pytest.mark.parametrize("batch_sequences", [1, 3, 16])
def test_scores_do_not_depend_on_the_batch_size(store: Artifact, params: Params, batch_sequences: int) -> None:
    expected, found = scored(store, params), scored(store, params, batch_sequences=batch_sequences)
    for domain, scores in expected.items():
        np.testing.assert_allclose(found[domain].nats, scores.nats, rtol=1e-5)  # the forward pass rounds per shape
        assert found[domain].tokens.tolist() == scores.tokens.tolist()


def test_scores_as_trained_differ_from_dropless_ones_by_drops_alone(store: Artifact, params: Params) -> None:
    held_out = HeldOutConfig(sequence_tokens=32, tokens_per_domain=300, batch_sequences=4)

    def nats(capacity_factor: float | None, drops: Drops) -> np.ndarray:
        model = variant(kernels=CHEAP, capacity_factor=capacity_factor)
        scores = HeldOutScorer(model, store, held_out, drops=drops).score(params, init_router_bias(MODEL), heartbeat=lambda done: None)
        return np.concatenate([one.nats for one in scores.values()])

    plain, room_for_all, crowded = nats(None, "dropless"), nats(4.0, "as_trained"), nats(0.5, "as_trained")
    np.testing.assert_array_equal(nats(0.5, "dropless"), plain)
    np.testing.assert_allclose(room_for_all, plain, rtol=1e-6)
    assert np.mean(np.abs(crowded - plain) > 1e-3) > 0.5, "most documents have a token that found no room"


def test_tokens_and_bytes_are_those_of_the_selected_documents(store: Artifact, params: Params) -> None:
    for domain, scores in scored(store, params).items():
        documents = list(held_out_documents(store, domain, 300, HeldOutConfig().max_document_tokens))
        assert scores.tokens.tolist() == [len(document) - 1 for document in documents]
        assert scores.bytes.tolist() == [TOKEN_BYTES * int((document[1:] > 1).sum()) for document in documents]
        assert sum(len(document) for document in documents) == 300


def test_a_model_that_knows_nothing_pays_about_the_logarithm_of_the_vocabulary(store: Artifact) -> None:
    zero = init(MODEL, seed=0)
    zero["head"] = jnp.zeros_like(zero["head"])
    for scores in scored(store, zero).values():
        assert scores.nats.sum() / scores.tokens.sum() == pytest.approx(math.log(MODEL.vocab_size), rel=1e-6)


def test_a_store_without_held_out_text_scores_nothing(tmp_path: Path, params: Params) -> None:
    store = store_of(tmp_path, {"web": [Document("a", (2, 3, 4))]})
    assert scored(store, params) == {}


def test_a_store_with_a_larger_vocabulary_is_refused(tmp_path: Path) -> None:
    store = store_of(tmp_path, {"web": [Document("a", (2, 3, 4))]}, vocab_size=65)
    with pytest.raises(ValueError, match="token ids below 65, the model knows 64"):
        HeldOutScorer(MODEL, store, HeldOutConfig())
