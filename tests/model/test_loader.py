import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.artifacts.artifact import Artifact
from model.batch import batch_of
from model.config import LoaderConfig
from model.loader import MixtureLoader
from model.mixing import MixingPlan, plan_of, windows_in
from ops.cache import TokenCache, read_ledger
from ops.config import MixtureConfig, MixtureStage
from ops.mixture import mix
from tests.builders import run_program
from tests.ops.stores import Document, store_of

S = 8


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Two domains of numbered documents, whose tokens all say which document they belong to."""
    numbers = iter(range(2, 1000))
    web = [Document(f"web{i}", (next(numbers),) * (1 + i % 13), quality=i % 2) for i in range(60)]
    books = [Document(f"book{i}", (next(numbers),) * (30 + i)) for i in range(8)]
    return store_of(tmp_path_factory.mktemp("store"), {"web": web, "books": books}, vocab_size=1000)


@pytest.fixture(scope="module")
def mixture(store: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    stages = (MixtureStage(), MixtureStage(start_sequence=40, domain_weights={"web": 0.8, "books": 0.2}))
    config = MixtureConfig(block_sequences=20, sequence_tokens=S, training_tokens=2000, epoch_cap=None, stages=stages, seed=5)
    return run_program(mix, config, tmp_path_factory.mktemp("mixture"), store=store)


def loader_of(store: Artifact, mixture: Artifact, **config: int) -> MixtureLoader:
    return MixtureLoader(store, mixture, LoaderConfig(**({"batch_sequences": 4, "sequence_tokens": S} | config)))


def same(one: object, other: object) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))  # type: ignore[call-overload]


def test_any_step_asked_for_alone_equals_that_step_of_a_whole_run(store: Artifact, mixture: Artifact) -> None:
    whole = loader_of(store, mixture)
    batches = [whole.batch(step) for step in range(60)]
    for step in (0, 59, 17, 3, 41):
        assert same(loader_of(store, mixture).batch(step), batches[step])


def test_a_batch_has_the_promised_shapes_and_types(store: Artifact, mixture: Artifact) -> None:
    batch = loader_of(store, mixture).batch(3)
    assert [array.shape for array in batch] == [(4, S)] * 4
    assert [array.dtype for array in batch] == [np.int32, np.int32, np.int32, np.float32]


def test_processes_that_read_their_rows_alone_make_up_the_batch(store: Artifact, mixture: Artifact) -> None:
    loader = loader_of(store, mixture)
    halves = [loader.batch(9, slice(0, 2)), loader.batch(9, slice(2, 4))]
    assert same([np.concatenate(pair) for pair in zip(*halves, strict=True)], loader.batch(9))


def test_no_label_crosses_documents_and_every_other_one_counts(store: Artifact, mixture: Artifact) -> None:
    """Every document repeats its own number, so a label inside a document equals its input or ends it."""
    loader = loader_of(store, mixture)
    for step in range(40):
        tokens, targets, segments, weights = loader.batch(step)
        inside = (targets == tokens) | (targets == 0)
        assert np.array_equal(weights == 1, inside & (tokens != 0))
        assert np.array_equal(np.diff(segments, axis=1) == 1, tokens[:, :-1] == 0)
        assert (segments[:, 0] == 0).all()
        assert np.array_equal(targets[:, :-1], tokens[:, 1:])


def test_every_block_holds_the_counts_of_its_stage(store: Artifact, mixture: Artifact) -> None:
    loader, document = loader_of(store, mixture), mixture.read_json("mixture.json")
    for block in range(6):
        drawn = np.concatenate([loader.draws(step).bucket for step in range(block * 5, block * 5 + 5)])
        expected = document["stages"][0 if block < 2 else 1]["sequences_per_block"]
        assert np.bincount(drawn, minlength=len(expected)).tolist() == expected


def test_an_epoch_reads_every_window_once_and_the_next_one_in_another_order(store: Artifact, mixture: Artifact) -> None:
    loader = loader_of(store, mixture)
    draws = [loader.draws(step) for step in range(400)]
    tokens = {bucket.folder: bucket.tokens for bucket in read_ledger(store).split("train")}
    for index, folder in enumerate(loader.folders):
        pairs = [(e, w) for d in draws for b, e, w in zip(d.bucket, d.epoch, d.window, strict=True) if b == index]
        windows = windows_in(tokens[folder], S)
        epochs = [sorted(w for e, w in pairs if e == epoch) for epoch in range(max(pairs)[0])]
        assert len(epochs) >= 2
        assert all(epoch == list(range(windows)) for epoch in epochs)
        if windows > 4:
            assert [w for e, w in pairs if e == 0] != [w for e, w in pairs if e == 1]


def test_the_seeds_of_mixture_and_run_both_change_the_order_but_not_the_counts(store: Artifact, mixture: Artifact) -> None:
    one, other = loader_of(store, mixture), loader_of(store, mixture, seed=1)
    assert not same(one.batch(0), other.batch(0))
    buckets = [np.sort(np.concatenate([loader.draws(step).bucket for step in range(5)])) for loader in (one, other)]
    assert np.array_equal(*buckets)


def test_the_trace_of_a_step_names_the_documents_in_its_batch(store: Artifact, mixture: Artifact) -> None:
    loader = loader_of(store, mixture)
    owner = {}
    for bucket in read_ledger(store).split("train"):
        cache = TokenCache.open(store, bucket.folder)
        for i in range(cache.documents):
            owner[int(cache.document(i)[0])] = cache.names_of([i])[0]
    for step in range(20):
        batch = loader.batch(step)
        seen = {owner[token] for token in np.unique(batch.tokens).tolist() if token}
        traced = loader.trace(step)
        assert seen <= set(traced)
        assert len(traced) == len(set(traced))
        # A row may begin with the end of text of a document that is otherwise before it.
        assert len(set(traced) - seen) <= np.count_nonzero(batch.tokens[:, 0] == 0)


def test_another_sequence_length_reads_the_same_stream_in_longer_slices(store: Artifact, mixture: Artifact) -> None:
    loader = loader_of(store, mixture, sequence_tokens=2 * S)
    streams = [TokenCache.open(store, folder).tokens for folder in loader.folders]
    for step in range(10):
        batch, draws = loader.batch(step), loader.draws(step)
        for row, (bucket, window) in enumerate(zip(draws.bucket, draws.window, strict=True)):
            assert np.array_equal(batch.tokens[row], streams[bucket][window * 2 * S :][: 2 * S])


def test_stages_start_at_the_same_token_whatever_the_sequence_length() -> None:
    mixture = {
        "block_sequences": 10,
        "sequence_tokens": 100,
        "seed": 0,
        "stages": [{"start_sequence": start, "sequences_per_block": [10]} for start in (0, 40, 80)],
    }
    assert plan_of(mixture, [500], 100, 0).stage_blocks.tolist() == [0, 4, 8]
    assert plan_of(mixture, [500], 200, 0).stage_blocks.tolist() == [0, 2, 4]
    assert plan_of(mixture, [500], 300, 0).stage_blocks.tolist() == [0, 2, 3]  # 1.33 and 2.67 blocks, rounded up


def test_a_bucket_shorter_than_a_sequence_is_padded_not_lost(tmp_path: Path) -> None:
    store = store_of(tmp_path, {"a": [Document("x", (5, 6, 7))]})
    mixture = run_program(mix, MixtureConfig(block_sequences=2, epoch_cap=None), tmp_path / "mixture", store=store)
    batch = loader_of(store, mixture, batch_sequences=1).batch(0)
    assert batch.tokens[0].tolist() == [5, 6, 7, 0, 0, 0, 0, 0]
    assert batch.targets[0].tolist() == [6, 7, 0, 0, 0, 0, 0, 0]
    assert batch.segment_ids[0].tolist() == [0, 0, 0, -1, -1, -1, -1, -1]
    assert batch.loss_weights[0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]


def test_a_mixture_of_another_store_is_refused(tmp_path: Path, mixture: Artifact) -> None:
    other = store_of(tmp_path, {"web": [Document("x", (5, 6, 7))]})
    with pytest.raises(ValueError, match="another store"):
        loader_of(other, mixture)


def test_a_negative_step_is_refused(store: Artifact, mixture: Artifact) -> None:
    with pytest.raises(ValueError, match="step -1"):
        loader_of(store, mixture).batch(-1)


def test_the_loader_imports_no_jax() -> None:
    code = "import sys, model.loader; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@settings(deadline=None, max_examples=50)
@given(
    counts=st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any), min_size=1, max_size=3),
    windows=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    seed=st.integers(0, 2**61),
)
def test_a_plan_reads_each_bucket_like_an_iterator_would(counts: list[list[int]], windows: list[int], seed: int) -> None:
    """Oracle: walk the sequences one by one and keep a cursor per bucket."""
    block = max(sum(row) for row in counts)
    rows = np.array([[row[0] + block - sum(row), *row[1:]] for row in counts], np.int64)
    starts = np.arange(len(counts), dtype=np.int64) * 2
    plan = MixingPlan(block, starts, rows, np.array(windows, np.int64), seed)
    drawn = plan.draws(np.arange(block * (2 * len(counts) + 2)))
    read = Counter[int]()
    for i, (bucket, epoch) in enumerate(zip(drawn.bucket.tolist(), drawn.epoch.tolist(), strict=True)):
        if i % block == 0:
            stage = min(i // block // 2, len(counts) - 1)
            assert np.bincount(drawn.bucket[i : i + block], minlength=3).tolist() == rows[stage].tolist()
            done = Counter(read)
        read[bucket] += 1
        assert done[bucket] // windows[bucket] <= epoch <= (done[bucket] + rows[stage, bucket] - 1) // windows[bucket]
    seen = Counter(zip(drawn.bucket.tolist(), drawn.epoch.tolist(), drawn.window.tolist(), strict=True))
    assert set(seen.values()) <= {1}
    assert all(window < windows[bucket] for bucket, _, window in seen)


def test_sequences_beyond_32_bits_neither_overflow_nor_repeat() -> None:
    huge = 2**40
    plan = MixingPlan(1000, np.array([0]), np.array([[999, 1]]), np.array([2**41, 3]), seed=1)
    drawn = plan.draws(np.arange(huge * 1000, huge * 1000 + 1000))
    assert np.bincount(drawn.bucket).tolist() == [999, 1]
    assert drawn.epoch[drawn.bucket == 1].tolist() == [huge // 3]
    first = drawn.window[drawn.bucket == 0]
    assert set(drawn.epoch[drawn.bucket == 0].tolist()) <= {huge * 999 // 2**41, huge * 999 // 2**41 + 1}
    assert len(np.unique(first)) == 999
    assert first.max() > 2**32


def test_windows_become_batches_by_the_end_of_text_alone() -> None:
    batch = batch_of(np.array([[5, 5, 0, 0, 7, 7]]), 0, np.array([5]))
    assert batch.tokens.tolist() == [[5, 5, 0, 0, 0]]
    assert batch.targets.tolist() == [[5, 0, 0, 7, 0]]
    assert batch.segment_ids.tolist() == [[0, 0, 0, 1, -1]]
    assert batch.loss_weights.tolist() == [[1, 1, 0, 0, 0]]
