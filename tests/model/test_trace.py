"""The data order of a run followed both ways: what a step read, and when a document was read."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.artifacts.artifact import Artifact
from model.batches import sequences_before
from model.config import BatchStage, LoaderConfig
from model.loader import MixtureLoader
from model.trace import documents_of_step, readings_of, step_of
from ops.cache import TokenCache, read_ledger
from ops.config import MixtureConfig, MixtureStage
from ops.mixture import mix
from ops.trace.places import Place, places_of
from tests.builders import run_program
from tests.ops.stores import Document, store_of

S = 8
WEB = [Document(f"web{i}", (2 + i,) * (1 + i % 13), quality=i % 2) for i in range(60)]
BOOKS = [Document(f"book{i}", (100 + i,) * (30 + i), held_out=i == 3) for i in range(8)]


class Run:
    """What `model.trace` asks of a run."""

    def __init__(self, start_step: int, end_step: int, loader: LoaderConfig) -> None:
        self.start_step, self.end_step, self.loader = start_step, end_step, loader


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return store_of(tmp_path_factory.mktemp("store"), {"web": WEB, "books": BOOKS}, vocab_size=1000)


@pytest.fixture(scope="module")
def mixture(store: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Two stages, and a run long enough to read every bucket several times."""
    stages = (MixtureStage(), MixtureStage(start_sequence=40, domain_weights={"web": 0.8, "books": 0.2}))
    config = MixtureConfig(block_sequences=20, sequence_tokens=S, training_tokens=2000, epoch_cap=None, stages=stages, seed=5)
    return run_program(mix, config, tmp_path_factory.mktemp("mixture"), store=store)


def run_of(**loader: Any) -> Any:
    shape = {"batch_sequences": 4, "sequence_tokens": S, "batch_stages": (BatchStage(start_step=20, batch_sequences=7),)}
    return Run(100, 160, LoaderConfig.model_validate(shape | loader))


def all_places(store: Artifact) -> list[Place]:
    ids = frozenset(document.id for document in (*WEB, *BOOKS))
    return list(places_of(store, read_ledger(store), ids))


@pytest.mark.parametrize("width", [S, 64])
def test_readings_are_what_every_step_says_it_reads(store: Artifact, mixture: Artifact, width: int):
    """Each step asked what it reads, all of them together, against each document asked when it was read."""
    run = run_of(sequence_tokens=width)
    by_step = {
        (one.source, one.id, step, one.row, one.epoch, one.start, one.end)
        for step in range(run.start_step, run.end_step)
        for one in documents_of_step(store, mixture, run, step)
    }
    by_document = {
        (place.source, place.id, one.step, one.row, one.epoch, one.start, one.end)
        for place in all_places(store)
        for one in readings_of(place, store, mixture, run)
    }
    assert by_document == by_step
    assert max(epoch for *_, epoch, _, _ in by_step) >= 2


def test_a_steps_documents_are_those_whose_tokens_are_in_its_batch(store: Artifact, mixture: Artifact):
    """Every document repeats a number of its own, so the batch itself says what it holds."""
    run = run_of()
    numbers = {("web", document.id): document.tokens[0] for document in WEB} | {
        ("books", document.id): document.tokens[0] for document in BOOKS
    }
    loader = MixtureLoader(store, mixture, run.loader)
    for step in (100, 119, 121, 159):
        found = list(documents_of_step(store, mixture, run, step))
        inputs = loader.batch(step - run.start_step)[0]
        for row in range(len(inputs)):
            # A document's last token is its end of text, which is 0 for all.
            expected = {numbers[one.source, one.id] for one in found if one.row == row and one.start < len_of(one.id)}
            assert set(inputs[row].tolist()) - {0} == expected
        assert {(one.source, one.id) for one in found} == set(loader.trace(step - run.start_step))


def len_of(id: str) -> int:
    return next(len(document.tokens) for document in (*WEB, *BOOKS) if document.id == id)


def test_held_out_documents_are_in_the_store_and_never_read(store: Artifact, mixture: Artifact):
    [place] = [place for place in all_places(store) if place.split == "held_out"]
    assert (place.source, place.id) == ("books", BOOKS[3].id)
    assert readings_of(place, store, mixture, run_of()) == []


def test_a_place_holds_the_documents_own_tokens(store: Artifact):
    tokens = {document.id: document.tokens for document in (*WEB, *BOOKS)}
    for place in all_places(store):
        assert TokenCache.open(store, place.folder).tokens[place.start : place.end - 1].tolist() == list(tokens[place.id])


def test_a_step_outside_the_run_is_refused(store: Artifact, mixture: Artifact):
    for step in (99, 160):
        with pytest.raises(ValueError, match="makes the steps 100 to 159"):
            list(documents_of_step(store, mixture, run_of(), step))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 12)), max_size=4), st.integers(1, 12))
def test_the_step_of_a_sequence_inverts_the_sequences_before_a_step(later: list[tuple[int, int]], first: int):
    start, batch_stages = 0, []
    for gap, size in later:
        start += gap
        batch_stages.append(BatchStage(start_step=start, batch_sequences=size))
    loader = LoaderConfig(batch_sequences=first, batch_stages=tuple(batch_stages))
    for step in range(start + 4):
        for sequence in range(sequences_before(loader, step), sequences_before(loader, step + 1)):
            assert step_of(loader, sequence) == step


def test_unpublished_folders_are_no_reading(store: Artifact, mixture: Artifact):
    place = Place("web", WEB[0].id, "train", "train/nowhere/q0", 0, 0, 5)
    assert readings_of(place, store, mixture, run_of()) == []
