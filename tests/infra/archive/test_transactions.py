"""What a transaction promises: all of it or nothing, and every key once."""

from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from infra.archive.archive import Archive
from infra.archive.errors import (
    ArchiveError,
    DuplicateKeyError,
    SealedError,
)
from infra.archive.tables import Table
from infra.storage.errors import PermanentStorageError, TransientStorageError
from infra.storage.objects import list_files, remove_tree
from tests.infra.archive.builders import ITEMS, add, docs_in, items
from tests.infra.storage.s3_server import S3, lose_the_reply, refuse


def test_what_was_committed_is_read_in_the_order_of_its_commits(archive: Archive) -> None:
    assert add(archive, [3, 1]) == 1
    assert add(archive, [2]) == 2
    found = Archive(archive.url).snapshot()
    assert found.read("items", ["doc", "_commit"]).to_pydict() == {"doc": [3, 1, 2], "_commit": [1, 1, 2]}
    assert found.read("items").to_pylist()[1] == {"task": "gsm8k", "doc": 1, "text": "question 1 of gsm8k"}
    assert (found.rows("items"), found.tables, found.key("items")) == (3, ("items",), ("task", "doc"))
    found.verify()


def test_nothing_is_seen_before_the_commit_and_nothing_stays_of_a_failed_block(archive: Archive) -> None:
    def fail_halfway() -> None:
        with archive.transaction() as transaction:
            transaction.append(ITEMS, items([1]))
            transaction.put_blob("x", b"1")
            transaction.prepare()
            assert archive.snapshot().tables == ()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert [name for name in list_files(archive.url) if not name.startswith(".manifest")] == []


def test_several_tables_and_blobs_are_one_commit(archive: Archive) -> None:
    other = Table("runs", pa.schema([("run", pa.string())]), key=("run",))
    with archive.transaction() as transaction:
        transaction.append(ITEMS, items([1]))
        transaction.append(other, pa.table({"run": ["a"]}))
        uri = transaction.put_blob("trajectories/1.json", b"{}")
    found = archive.snapshot()
    assert (found.number, found.tables, found.blobs) == (1, ("items", "runs"), {"trajectories/1.json": 2})
    with archive.open(uri) as stream:
        assert stream.read() == b"{}"


def test_a_key_that_is_committed_is_refused_by_name_and_nothing_of_its_transaction_stays(archive: Archive) -> None:
    add(archive, range(5))
    stale = Archive(archive.url)
    transaction = stale.transaction()
    transaction.append(ITEMS, items([7, 3]))
    transaction.put_blob("x", b"1")
    with pytest.raises(
        DuplicateKeyError, match=r"table 'items': key \(task='gsm8k', doc=3\) is committed already, in commits 1"
    ) as refused:
        transaction.commit()
    assert (refused.value.table, refused.value.key) == ("items", {"task": "gsm8k", "doc": 3})
    assert docs_in(archive) == [0, 1, 2, 3, 4]
    assert archive.snapshot().blobs == {}
    assert add(archive, [7]) == 2


def test_a_key_that_a_transaction_has_twice_is_refused(archive: Archive) -> None:
    transaction = archive.transaction()
    transaction.append(ITEMS, items([1, 2]))
    transaction.append(ITEMS, items([9, 2]))
    with pytest.raises(DuplicateKeyError, match=r"table 'items': key \(task='gsm8k', doc=2\) occurs twice"):
        transaction.commit()
    with pytest.raises(ArchiveError, match="begin another"):
        transaction.append(ITEMS, items([1]))
    assert archive.snapshot().tables == ()


def test_two_filters_of_one_document_are_two_rows_once_the_filter_is_in_the_key(here: Archive) -> None:
    schema = pa.schema([("doc", pa.int64()), ("filter", pa.string()), ("score", pa.float64())])
    rows = pa.table({"doc": [1, 1], "filter": ["strict-match", "flexible-extract"], "score": [0.0, 1.0]})
    with pytest.raises(DuplicateKeyError, match="doc=1"), here.transaction() as transaction:
        transaction.append(Table("samples", schema, key=("doc",)), rows)
    with here.transaction() as transaction:
        transaction.append(Table("samples", schema, key=("doc", "filter")), rows)
    assert here.snapshot().rows("samples") == 2


def test_keys_are_compared_by_column_and_not_by_what_they_join_to(here: Archive) -> None:
    table = Table("pairs", pa.schema([("a", pa.string()), ("b", pa.string())]), key=("a", "b"))
    pairs = {
        ("a", "bc"),
        ("ab", "c"),
        ("", "abc"),
        ("abc", ""),
        ("1:", ":1"),
        ("1", "::1"),
        ("a\0", "b"),
        ("a", "\0b"),
        ("é", ""),
        ("", "é"),
    }
    with here.transaction() as transaction:
        transaction.append(table, pa.table({"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}))
    assert {(row["a"], row["b"]) for row in here.snapshot().read("pairs").to_pylist()} == pairs


def test_a_sealed_archive_takes_nothing_more_from_anybody(archive: Archive) -> None:
    add(archive, [1])
    late = Archive(archive.url).transaction()
    late.append(ITEMS, items([2]))
    assert archive.seal() == archive.seal() == 2
    with pytest.raises(SealedError, match="is sealed"):
        late.commit()
    with pytest.raises(SealedError):
        add(archive, [3])
    assert docs_in(archive) == [1]
    assert archive.snapshot().sealed


def test_large_appends_are_split_into_shards_and_row_groups(here: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.archive.transaction.SHARD_BYTES", 40_000)
    with here.transaction() as transaction:
        transaction.append(ITEMS, (items(range(start, start + 5_000)) for start in range(0, 40_000, 5_000)))
    found = here.snapshot()
    assert len(found.shard_urls("items")) > 1
    assert docs_in(here) == list(range(40_000))
    assert max(batch.num_rows for batch in found.batches("items", rows=1_000)) <= 1_000


def test_a_backend_without_a_conditional_create_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(PermanentStorageError, match="has no conditional create"):
        Archive(f"dir::file://{tmp_path}/archive").transaction()
    assert list(tmp_path.iterdir()) == []


def test_a_writer_whose_reply_was_lost_for_good_asks_again_and_its_rows_are_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(f"memory://{uuid4().hex}/archive")
    with archive.transaction() as other:
        other.append(ITEMS, items([1]))
    transaction = archive.transaction()
    transaction.append(ITEMS, items([2]))
    transaction.prepare()
    pipe_file = MemoryFileSystem.pipe_file

    def lose_the_reply_of(filesystem: MemoryFileSystem, path: str, value: bytes) -> None:
        pipe_file(filesystem, path, value)
        raise ConnectionResetError("injected")

    with monkeypatch.context() as patch:
        patch.setattr("infra.storage.errors.ATTEMPTS", 1)
        patch.setattr(MemoryFileSystem, "pipe_file", lose_the_reply_of)
        with pytest.raises(TransientStorageError):
            transaction.commit()
    transaction.discard()
    assert add(Archive(archive.url), [3]) == 3
    archive.seal()
    assert transaction.commit() == 2
    assert docs_in(archive) == [1, 2, 3]
    archive.snapshot().verify()
    remove_tree(archive.url.removesuffix("/archive"))


@pytest.mark.s3
def test_a_commit_whose_reply_is_lost_or_that_meets_a_conflict_counts_once(s3: S3) -> None:
    archive = Archive(f"{s3.root}/archive")
    add(archive, [1])
    s3.server.faults[:] = [lose_the_reply, refuse("409 Conflict", "ConditionalRequestConflict"), lose_the_reply]
    assert add(archive, [2]) == 2
    assert add(archive, [3]) == 3
    assert docs_in(Archive(archive.url)) == [1, 2, 3]
