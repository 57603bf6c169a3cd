import dataclasses
import itertools
import math
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from ops import ngram
from ops.cache import held_out_documents
from ops.config import NgramConfig
from ops.kneser_ney import START, as_stream, count_kneser_ney
from ops.ngram import ngram_baselines
from tests.builders import publish, run_program
from tests.ops.stores import TOKEN_BYTES, Document, store_of

VOCABULARY = 5
CORPUS = st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12), min_size=1, max_size=8)


class SlowKneserNey:
    """The textbook, over tuples and dictionaries."""

    def __init__(self, documents: list[list[int]], vocabulary: int) -> None:
        self.vocabulary = vocabulary
        grams = [tuple(([START] * 4 + d)[i : i + 5]) for d in documents for i in range(len(d))]
        self.counts: list[dict[tuple[int, ...], int]] = [defaultdict(int) for _ in range(6)]
        for gram in grams:
            self.counts[5][gram] += 1
        for n in (4, 3, 2, 1):
            for gram in self.counts[n + 1]:
                self.counts[n][gram[1:]] += 1
        self.discounts = [0.0] + [self.discount(list(self.counts[n].values())) for n in range(1, 6)]

    @staticmethod
    def discount(counts: list[int]) -> float:
        once, twice = counts.count(1), counts.count(2)
        return min(0.95, max(0.05, once / (once + 2 * twice))) if once else 0.5

    def probability(self, context: tuple[int, ...], token: int) -> float:
        n = len(context) + 1
        shorter = self.probability(context[1:], token) if n > 1 else 1 / self.vocabulary
        followers = {gram: count for gram, count in self.counts[n].items() if gram[:-1] == context}
        total = sum(followers.values())
        if not total:
            return shorter
        d = self.discounts[n]
        return max(followers.get((*context, token), 0) - d, 0) / total + d * len(followers) / total * shorter


def stream_of(documents: list[list[int]]) -> np.ndarray:  # type: ignore[type-arg]
    return as_stream(np.array(document, np.int64) for document in documents)


@settings(deadline=None, max_examples=60)
@given(train=CORPUS, held_out=CORPUS)
def test_probabilities_are_those_of_the_textbook(train: list[list[int]], held_out: list[list[int]]) -> None:
    slow, fast = SlowKneserNey(train, VOCABULARY), count_kneser_ney(stream_of(train), VOCABULARY)
    stream = stream_of(held_out)
    found = fast.probabilities(stream)[stream != START]
    expected = [
        slow.probability(tuple(([START] * 4 + document)[i : i + 4]), token) for document in held_out for i, token in enumerate(document)
    ]
    assert np.allclose(found, expected, rtol=1e-12)


@settings(deadline=None, max_examples=40)
@given(train=CORPUS, context=st.lists(st.integers(0, VOCABULARY - 1), max_size=6))
def test_every_context_has_a_proper_distribution(train: list[list[int]], context: list[int]) -> None:
    model = count_kneser_ney(stream_of(train), VOCABULARY)
    probabilities = [model.probabilities(stream_of([[*context, token]]))[-1] for token in range(VOCABULARY)]
    assert sum(probabilities) == pytest.approx(1, abs=1e-12)
    assert min(probabilities) > 0


def test_seen_contexts_of_every_length_have_proper_distributions_too() -> None:
    train = [[random.Random(i).randrange(3) for _ in range(30)] for i in range(5)]
    model = count_kneser_ney(stream_of(train), 3)
    for length in range(5):
        for context in itertools.product(range(3), repeat=length):
            total = sum(model.probabilities(stream_of([[*context, token]]))[-1] for token in range(3))
            assert total == pytest.approx(1, abs=1e-12)


def bigram_text(seed: int, length: int) -> tuple[int, ...]:
    """After i comes i + 1 most of the time: predictable from context, flat without it."""
    random_ = random.Random(seed)
    tokens = [2]
    while len(tokens) < length:
        tokens.append(2 + (tokens[-1] - 2 + 1) % 20 if random_.random() < 0.9 else random_.randrange(2, 22))
    return tuple(tokens)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    train = [Document(f"t{i}", bigram_text(i, 200), quality=i % 3) for i in range(40)]
    held_out = [Document(f"h{i}", bigram_text(1000 + i, 50), held_out=True) for i in range(10)]
    noise = [Document(f"n{i}", tuple(random.Random(i).choices(range(2, 22), k=40)), held_out=True) for i in range(5)]
    return store_of(tmp_path_factory.mktemp("store"), {"steps": [*train, *held_out], "noise": noise})


@pytest.fixture(scope="module")
def tokenizer(store: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    directory = tmp_path_factory.mktemp("tokenizer")
    out = Writer(str(directory / "attempt"), scratch_url=str(directory))
    with out.open("token_bytes.npy") as stream:
        stream.write(store.open("token_bytes.npy").read())
    artifact = publish(directory, out, {})
    return dataclasses.replace(artifact, manifest=artifact.manifest.model_copy(update={"digest": "t" * 64}))


def test_context_pays_where_there_is_any_and_the_file_says_by_how_much(store: Artifact, tokenizer: Artifact, tmp_path: Path) -> None:
    artifact = run_program(ngram_baselines, NgramConfig(), tmp_path, store=store, tokenizer=tokenizer)
    slices = artifact.read_json("baselines.json")["slices"]
    steps, noise = slices["steps"], slices["noise"]
    assert steps["unigram"]["nats_per_token"] == pytest.approx(math.log(20), abs=0.15)
    entropy = -0.9 * math.log(0.9 + 0.1 / 20) - 0.1 * math.log(0.1 / 20)  # of the source, its rare jumps taken as all different
    assert entropy - 0.1 < steps["five_gram"]["nats_per_token"] < entropy + 0.35
    assert noise["five_gram"]["nats_per_token"] > noise["unigram"]["nats_per_token"] > 3


def test_tokens_and_bytes_are_those_of_the_held_out_documents(store: Artifact, tokenizer: Artifact, tmp_path: Path) -> None:
    artifact = run_program(
        ngram_baselines, NgramConfig(held_out_tokens=130, max_document_tokens=20), tmp_path, store=store, tokenizer=tokenizer
    )
    found = artifact.read_json("baselines.json")["slices"]["steps"]
    documents = list(held_out_documents(store, "steps", 130, 20))
    scored = [token for document in documents for token in document[1:].tolist()]
    assert (found["documents"], found["tokens"]) == (len(documents), len(scored))
    assert found["bytes"] == TOKEN_BYTES * sum(token != 0 for token in scored)
    for name in ("unigram", "five_gram"):
        nats = found[name]["nats_per_token"] * found["tokens"]
        assert found[name]["bits_per_byte"] == pytest.approx(nats / math.log(2) / found["bytes"])


def test_the_number_of_documents_scored_together_changes_nothing(
    store: Artifact, tokenizer: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = set()
    for together in (1, 3, 256):
        monkeypatch.setattr(ngram, "SCORE_DOCUMENTS", together)
        digests.add(run_program(ngram_baselines, NgramConfig(), tmp_path / str(together), store=store, tokenizer=tokenizer).digest)
    assert len(digests) == 1


def test_the_token_cap_bounds_what_is_counted(store: Artifact, tokenizer: Artifact, tmp_path: Path) -> None:
    stats = run_program(ngram_baselines, NgramConfig(train_tokens=1000), tmp_path, store=store, tokenizer=tokenizer).stats
    assert 990 <= stats["train_tokens"] <= 1000


def test_another_tokenizer_than_the_stores_is_refused(store: Artifact, tokenizer: Artifact, tmp_path: Path) -> None:
    other = dataclasses.replace(tokenizer, manifest=tokenizer.manifest.model_copy(update={"digest": "u" * 64}))
    with pytest.raises(ValueError, match="made with tokenizer tttt"):
        run_program(ngram_baselines, NgramConfig(), tmp_path, store=store, tokenizer=other)
