"""store -> baselines: what counting alone reaches on the held-out documents. A model that doesn't beat it has learnt nothing."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.cache import TokenCache, held_out_documents, read_ledger, select_documents
from ops.config import NgramConfig
from ops.kneser_ney import START, KneserNey, Probabilities, Stream, as_stream, count_kneser_ney
from ops.tokenizer import load_token_bytes

SCORE_DOCUMENTS = 256  # scored together: bounds memory
DECIMALS = 9  # of a score; the last bits of a logarithm differ between processors, and an artifact's bytes must not


class Score(BaseModel):
    """None where nothing was scored: a measure without a denominator is no zero."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nats_per_token: float | None
    bits_per_byte: float | None


class Slice(BaseModel):
    """One held-out domain: `tokens` scored targets that stand for `bytes` of text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    unigram: Score
    five_gram: Score
    documents: int
    tokens: int
    bytes: int


class NgramStats(Stats):
    train_tokens: int
    vocab_size: int
    discounts: tuple[float, ...]  # of orders 1 to 5
    grams: tuple[int, ...]  # distinct n-grams of orders 1 to 5
    slices: dict[str, Slice]


@program(version="2")
def ngram_baselines(config: NgramConfig, store: Artifact, tokenizer: Artifact, out: Writer) -> NgramStats:
    """Count the train tokens and score the held-out ones, by the same tokens and bytes as a model's evaluation.

    Args:
        store: its train buckets are counted, each in proportion to its size; its held-out buckets are scored.
        tokenizer: the store's; bytes per token come from it.
        out: gets `baselines.json`: `slices` {domain: {unigram, five_gram: {nats_per_token, bits_per_byte}, documents, tokens,
            bytes}}, `held_out_tokens`, `max_document_tokens`, `train_tokens`, `smoothing`.

    Raises:
        ValueError: the store was made with another tokenizer.

    The unigram model adds one to every count; the 5-gram model is interpolated Kneser-Ney with one discount per order. Both
    are distributions over the whole vocabulary and never cross documents.
    """
    ledger, token_bytes = read_ledger(store), load_token_bytes(tokenizer)
    if ledger.tokenizer_digest != tokenizer.digest:
        raise ValueError(
            f"{store.url} was made with tokenizer {ledger.tokenizer_digest[:12]}, not {tokenizer.digest[:12]}; rebuild the store"
        )
    stream = as_stream(_train_documents(store, config.train_tokens, out))
    five_gram, unigram = count_kneser_ney(stream, ledger.vocab_size), unigram_of(stream, ledger.vocab_size)
    domains = [bucket.domain for bucket in ledger.split("held_out")]
    slices: dict[str, Slice] = {}
    for domain in domains:
        documents = held_out_documents(store, domain, config.held_out_tokens, config.max_document_tokens)
        slices[domain] = _score(documents, five_gram, unigram, token_bytes)
        out.progress(len(slices), len(domains), "held-out domains", tokens=slices[domain].tokens)
    train_tokens = int(np.count_nonzero(stream != START))
    out.write_json(
        "baselines.json",
        {
            "slices": {domain: found.model_dump() for domain, found in slices.items()},
            "held_out_tokens": config.held_out_tokens,
            "max_document_tokens": config.max_document_tokens,
            "train_tokens": train_tokens,
            "smoothing": {"unigram": "add one", "five_gram": "interpolated Kneser-Ney, one discount per order"},
        },
    )
    return NgramStats(
        train_tokens=train_tokens,
        vocab_size=ledger.vocab_size,
        discounts=tuple(level.discount for level in five_gram.levels),
        grams=tuple(len(level.grams) for level in five_gram.levels),
        slices=slices,
    )


def unigram_of(stream: Stream, vocab_size: int) -> Probabilities:
    """p(token), add-one smoothed: float64 [vocab]."""
    counts = np.bincount(stream[stream != START], minlength=vocab_size) + 1.0
    return counts / counts.sum()


def _train_documents(store: Artifact, max_tokens: int, out: Writer) -> Iterator[npt.NDArray[np.integer]]:
    buckets = read_ledger(store).split("train")
    available = sum(bucket.tokens for bucket in buckets)
    read = 0
    for bucket in buckets:
        cache = TokenCache.open(store, bucket.folder)
        for index, take in select_documents(cache, bucket.tokens * min(max_tokens, available) // available):
            yield np.asarray(cache.document(index)[:take])
            read += take
            if index % 1024 == 0:
                out.progress(read, min(max_tokens, available), "tokens counted")


def _score(
    held_out: Iterator[npt.NDArray[np.integer]],
    five_gram: KneserNey,
    unigram: npt.NDArray[np.float64],
    token_bytes: npt.NDArray[np.int32],
) -> Slice:
    documents = tokens = size = 0
    unigram_nats = five_gram_nats = 0.0
    for group in _grouped(held_out):
        stream = as_stream(group)
        scored = _scored(stream)
        targets = stream[scored]
        five_gram_nats -= math.fsum(np.log(five_gram.probabilities(stream)[scored]))
        unigram_nats -= math.fsum(np.log(unigram[targets]))
        documents, tokens, size = documents + len(group), tokens + len(targets), size + int(token_bytes[targets].sum())

    return Slice(
        unigram=_ratios(unigram_nats, tokens, size),
        five_gram=_ratios(five_gram_nats, tokens, size),
        documents=documents,
        tokens=tokens,
        bytes=size,
    )


def _ratios(nats: float, tokens: int, size: int) -> Score:
    return Score(
        nats_per_token=round(nats / tokens, DECIMALS) if tokens else None,
        bits_per_byte=round(nats / math.log(2) / size, DECIMALS) if size else None,
    )


def _scored(stream: Stream) -> npt.NDArray[np.bool_]:
    """Every token but the first of each document."""
    scored: npt.NDArray[np.bool_] = stream != START
    scored[1:] &= stream[:-1] != START
    return scored


def _grouped(documents: Iterator[npt.NDArray[np.integer]]) -> Iterator[list[npt.NDArray[np.integer]]]:
    group: list[npt.NDArray[np.integer]] = []
    for document in documents:
        group.append(document)
        if len(group) == SCORE_DOCUMENTS:
            yield group
            group = []
    if group:
        yield group
