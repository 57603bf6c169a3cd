"""Score held-out documents, summed up per document.

All tokens of a document but its first are scored, each given what stands before it in its document, at most
`sequence_tokens` back to the start of its piece. Counting baselines that read as many tokens score the same ones.
"""

from collections.abc import Callable
from itertools import batched
from typing import Any, Literal

import numpy as np
from jax import Array
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from model.architecture import ModelConfig
from model.attention_choice import settled
from model.config import HeldOutConfig
from model.eval.packing import batch_of, pieces_of, rows_of
from model.eval.scores import DocumentScores
from model.layout import Layout, one_device
from model.parameters import Params
from model.scoring import scorer_of
from ops.cache import held_out_documents, read_ledger
from ops.tokenizer import load_token_bytes

Heartbeat = Callable[[int], None]
"""Told how many sequences are scored."""

Drops = Literal["dropless", "as_trained"]
"""What a full expert does to a score. dropless: nothing, as a model is used. as_trained: what it did in training, where a capacity makes
a score hang on the batch around a text and worse than the model is."""


class HeldOutScorer:
    """Scores one store's held-out text under one model shape. Compiles once, however often it is asked."""

    def __init__(
        self, model: ModelConfig, store: Artifact, held_out: HeldOutConfig, *, layout: Layout | None = None, drops: Drops = "dropless"
    ) -> None:
        """Score where the parameters lie: over the devices of `layout`, or on one.

        Raises:
            ValueError: the store's tokens don't fit the model.
        """
        ledger = read_ledger(store)
        if ledger.vocab_size > model.vocab_size:
            raise ValueError(f"{store.url} has token ids below {ledger.vocab_size}, the model knows {model.vocab_size}; raise vocab_size")
        self._domains = [bucket.domain for bucket in ledger.split("held_out")]
        self._store, self._config = store, held_out
        self._token_bytes = load_token_bytes(store)
        found, _ = settled(model, held_out.sequence_tokens)
        self._nats = scorer_of(found.dropless if drops == "dropless" else found, layout or one_device(model))

    def score(self, params: Params, router_bias: Array, *, heartbeat: Heartbeat) -> dict[str, DocumentScores]:
        """Score every domain.

        Returns:
            By domain; empty if nothing is held out. Sums are float64 in document order, so they depend on the batch size
            only through the rounding of the forward pass.
        """
        config, done = self._config, 0
        scores: dict[str, DocumentScores] = {}
        for domain in self._domains:
            documents = list(held_out_documents(self._store, domain, config.tokens_per_domain, config.max_document_tokens))
            scores[domain] = self._unscored(documents)
            rows = rows_of(pieces_of(documents, config.sequence_tokens), config.sequence_tokens)
            for group in batched(rows, config.batch_sequences):
                batch = batch_of(group, config.batch_sequences, config.sequence_tokens)
                nats = self._nats(params, router_bias, batch).astype(np.float64)
                for row, row_nats in zip(group, nats, strict=False):  # the last group is filled up with rows of padding
                    for _, piece, place in row.places():
                        scores[domain].nats[piece.document] += row_nats[place].sum()
                done += len(group)
                heartbeat(done)
        return scores

    def _unscored(self, documents: list[NDArray[Any]]) -> DocumentScores:
        """Tokens and bytes are known before any model speaks; nats are still zero."""
        targets = [document[1:] for document in documents]
        return DocumentScores(
            nats=np.zeros(len(documents)),
            tokens=np.array([len(tokens) for tokens in targets], np.int64),
            bytes=np.array([self._token_bytes[tokens].sum() for tokens in targets], np.int64),
        )
