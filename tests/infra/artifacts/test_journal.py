"""Observations and decisions: kept beside the artifacts, append-only."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from infra.artifacts.journal import Decision, Observation, append, entries
from infra.artifacts.store import ArtifactStore
from infra.storage.objects import remove_tree
from tests.infra.artifacts.builders import published


@pytest.fixture
def root() -> Iterator[str]:
    url = f"memory://{uuid4().hex}"
    yield url
    remove_tree(url)


def test_what_was_appended_comes_back(root: str) -> None:
    loss = Observation(digest="a" * 64, name="held_out_bits_per_byte", value={"web": 1.25}, by="evaluate")
    promoted = Decision(digest="a" * 64, name="promote", outcome="yes", reason="beats the prediction", by="ada")
    other = Observation(digest="b" * 64, name="seconds", value=3, by="bench")
    for entry in (loss, promoted, other):
        append(root, entry)
    assert sorted(entries(root, "a" * 64), key=lambda entry: entry.kind) == [promoted, loss]
    assert {entry.uid for entry in entries(root)} == {loss.uid, promoted.uid, other.uid}


def test_an_entry_is_never_changed(root: str) -> None:
    entry = Observation(digest="a" * 64, name="seconds", value=3, by="bench")
    append(root, entry)
    append(root, entry)
    with pytest.raises(ValueError, match="holds another entry"):
        append(root, entry.model_copy(update={"value": 4}))
    assert list(entries(root)) == [entry]


def test_measuring_an_artifact_does_not_touch_it(root: str) -> None:
    store = ArtifactStore(root)
    artifact = published(store, "hero")
    append(root, Observation(digest=artifact.digest, name="seconds", value=3, by="bench"))
    assert [found for *_, found in store.artifacts()] == [artifact]
    store.verify(artifact)
