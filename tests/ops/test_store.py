import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.artifacts.artifact import Artifact
from ops import bucket_spill, store
from ops.attrition import attrition
from ops.cache import TokenCache, read_ledger
from ops.config import StoreConfig
from ops.dataflow.errors import PoisonedShardsError
from ops.shards import MisalignedShardError
from ops.store import build_store
from tests.builders import run_program
from tests.ops.stores import Document, store_inputs, store_of

FLAGS = st.booleans()
DOCUMENT = st.builds(
    Document,
    name=st.text("abcdefgh", min_size=1, max_size=6),
    tokens=st.lists(st.integers(2, 49), max_size=9).map(tuple),
    held_out=st.sampled_from([False, False, True]),
    contaminated=FLAGS,
    fuzzy=FLAGS,
    exact=FLAGS,
    language=st.sampled_from(["en", "de"]),
    score=st.sampled_from([0.25, 0.75]),
    quality=st.integers(0, 4),
)
SOURCE = st.lists(DOCUMENT, max_size=12, unique_by=lambda document: document.name)
KEEP = Document("kept", (2, 3, 4))


def outcome_of(document: Document, config: StoreConfig) -> str:
    """The rule in plain words, one document at a time."""
    if document.held_out:
        return "held_out_duplicate" if document.fuzzy or document.exact else "held_out"
    if document.contaminated:
        return "contaminated"
    if document.fuzzy:
        return "fuzzy"
    if document.exact:
        return "exact"
    if not document.tokens:
        return "emptied"
    if config.languages and document.language not in config.languages:
        return "language"
    if config.min_quality is not None and document.score < config.min_quality:
        return "quality"
    return "out"


def contents(artifact: Artifact) -> dict[str, list[tuple[str, str, list[int]]]]:
    """Every bucket by folder: (source, id, tokens) of each document, in order."""
    found = {}
    for bucket in read_ledger(artifact).buckets:
        cache = TokenCache.open(artifact, bucket.folder)
        names = cache.names_of(list(range(cache.documents)))
        found[bucket.folder] = [(*name, cache.document(i).tolist()) for i, name in enumerate(names)]
    return found


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    a=SOURCE,
    b=SOURCE,
    languages=st.sampled_from([(), ("en",)]),
    min_quality=st.sampled_from([None, 0.5]),
    shards=st.integers(1, 3),
)
def test_every_document_is_in_its_bucket_or_counted_as_the_first_reason_that_holds(tmp_path_factory, a, b, languages, min_quality, shards):  # type: ignore[no-untyped-def]
    config = StoreConfig(domains={"b": "books"}, languages=languages, min_quality=min_quality)
    sources = {"a": [*a, KEEP], "b": b}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "ROWS", 3)
        built = store_of(tmp_path_factory.mktemp("store"), sources, config, shards=shards)
    expected: dict[str, list[tuple[str, str, list[int]]]] = {}
    counted = {
        source: dict.fromkeys(
            ("contaminated", "fuzzy", "exact", "emptied", "language", "quality", "held_out_duplicate", "held_out", "out"), 0
        )
        for source in sources
    }
    for source, documents in sources.items():
        rows = sorted(documents, key=lambda document: document.id)
        for document in [row for i in range(shards) for row in rows[i::shards]]:
            outcome = outcome_of(document, config)
            counted[source][outcome] += 1
            domain = config.domains.get(source, source)
            folder = {"out": f"train/{domain}/q{document.quality}", "held_out": f"held_out/{domain}/all"}.get(outcome)
            if folder:
                expected.setdefault(folder, []).append((source, document.id, [*document.tokens, 0]))
    assert contents(built) == expected
    ledger = read_ledger(built)
    for source, counts in counted.items():
        assert ledger.counters[source].documents.model_dump() == {"read": len(sources[source]), **counts}
    assert ledger.total.documents.read == len(a) + 1 + len(b)
    for bucket in ledger.buckets:
        assert (bucket.documents, bucket.tokens) == (len(expected[bucket.folder]), sum(len(row[2]) for row in expected[bucket.folder]))


def test_the_files_can_be_read_with_numpy_alone(tmp_path: Path) -> None:
    built = store_of(tmp_path, {"a": [KEEP, Document("other", (5,))]})
    tokens, offsets = (np.load(built.local_path(f"train/a/q2/{name}.npy"), mmap_mode="r") for name in ("tokens", "offsets"))
    assert (tokens.dtype, offsets.dtype) == (np.uint16, np.int64)
    assert sorted(tokens[s:e].tolist() for s, e in pairwise(offsets)) == [[2, 3, 4, 0], [5, 0]]
    assert read_ledger(built).buckets[0].bytes == 12
    assert np.load(built.local_path("token_bytes.npy")).tolist() == [0, 0] + [3] * 48


def test_a_vocabulary_beyond_16_bits_is_stored_in_32(tmp_path: Path) -> None:
    built = store_of(tmp_path, {"a": [Document("x", (65_536, 65_535))]}, vocab_size=65_537)
    assert TokenCache.open(built, "train/a/q2").tokens.tolist() == [65_536, 65_535, 0]
    assert read_ledger(built).dtype == "uint32"


def test_65536_ids_still_fit_16_bits(tmp_path: Path) -> None:
    built = store_of(tmp_path, {"a": [Document("x", (65_535,))]}, vocab_size=65_536)
    assert TokenCache.open(built, "train/a/q2").tokens.tolist() == [65_535, 0]
    assert read_ledger(built).dtype == "uint16"


def test_row_groups_are_even_so_that_a_documents_group_follows_from_its_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_spill, "ROWS_PER_BATCH", 4)
    monkeypatch.setattr("ops.cache.ROWS_PER_BATCH", 4)
    monkeypatch.setattr(store, "ROWS", 3)
    built = store_of(tmp_path, {"a": [Document(str(i), (i,)) for i in range(2, 12)]})
    metadata = pq.read_metadata(built.local_path("train/a/q2/documents.parquet"))
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [4, 4, 2]
    cache = TokenCache.open(built, "train/a/q2")
    expected = {Document(str(i), ()).id: i for i in range(2, 12)}
    assert [expected[name] for _, name in cache.names_of([9, 0, 5])] == [cache.document(i)[0] for i in (9, 0, 5)]


def test_the_size_of_batches_changes_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {"a": [Document(str(i), (i % 40 + 2,) * (i % 5), quality=i % 5) for i in range(30)]}
    digests = set()
    for rows in (1, 7, 1024):
        monkeypatch.setattr(store, "ROWS", rows)
        digests.add(store_of(tmp_path / str(rows), sources).digest)
    assert len(digests) == 1


@contextmanager
def refused(message: str) -> Iterator[None]:
    """By the driver; or by the shard whose labels are looked at, which is then named as one that can't be done."""
    with pytest.raises((MisalignedShardError, PoisonedShardsError), match=message) as caught:
        yield
    assert "MisalignedShardError" in f"{type(caught.value).__name__} {caught.value}"


def test_inputs_built_from_other_documents_are_refused_by_shard_and_row(tmp_path: Path) -> None:
    inputs = store_inputs(tmp_path / "one", {"a": [KEEP, Document("x", (5,))]})
    other = store_inputs(tmp_path / "other", {"a": [KEEP, Document("y", (5,))]})
    for name in inputs:
        if name == "normalized":
            continue
        with refused(r"a/part-00000-of-00001.parquet"):
            run_program(build_store, StoreConfig(), tmp_path / f"store-{name}", **(inputs | {name: other[name]}))  # type: ignore[arg-type]


def test_attribute_sets_with_missing_rows_or_shards_are_refused(tmp_path: Path) -> None:
    inputs = store_inputs(tmp_path / "one", {"a": [KEEP, Document("x", (5,))]})
    shorter = store_inputs(tmp_path / "short", {"a": [KEEP]})
    sharded = store_inputs(tmp_path / "sharded", {"a": [KEEP, Document("x", (5,))]}, shards=2)
    for name in set(inputs) - {"normalized"}:
        for kind, other in (("short", shorter), ("sharded", sharded)):
            with refused(r"rebuild|rows"):
                run_program(build_store, StoreConfig(), tmp_path / f"{name}-{kind}", **(inputs | {name: other[name]}))  # type: ignore[arg-type]


def test_sources_tokenized_with_different_tokenizers_are_refused(tmp_path: Path) -> None:
    inputs = store_inputs(tmp_path, {"a": [KEEP], "b": [KEEP]})
    stale = inputs["tokens"]["b"]  # type: ignore[index]
    changed = stale.manifest.model_copy(update={"stats": stale.stats | {"tokenizer_digest": "u" * 64}})
    inputs["tokens"]["b"] = dataclasses.replace(stale, manifest=changed)  # type: ignore[index]
    with pytest.raises(ValueError, match="2 different tokenizers"):
        run_program(build_store, StoreConfig(), tmp_path / "store", **inputs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (StoreConfig(domains={"typo": "books"}), "typo"),
        (StoreConfig(domains={"a": "../up"}), "can't name folders"),
        (StoreConfig(languages=("xx",)), "no train document is left"),
    ],
)
def test_a_config_that_cannot_work_says_what_is_wrong(tmp_path: Path, config: StoreConfig, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        store_of(tmp_path, {"a": [KEEP]}, config)


def test_an_end_of_text_inside_a_document_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="end of text inside"):
        store_of(tmp_path, {"a": [Document("x", (5, 0, 6))]})


def test_counters_that_do_not_balance_stop_the_store() -> None:
    with pytest.raises(AssertionError, match="add up to 9"):
        attrition(8, [1] * 9)
