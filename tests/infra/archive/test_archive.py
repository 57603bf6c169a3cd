"""The archive's promises on a disk, in memory and on S3, one at a time."""

import os
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import duckdb
import fsspec
import polars as pl
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from infra.archive.archive import Archive
from infra.archive.chain import Chain
from infra.archive.compaction import Compaction
from infra.archive.errors import (
    ArchiveError,
    ArchiveNotFoundError,
    CorruptArchiveError,
    DuplicateKeyError,
    FencedError,
    SchemaConflictError,
    SealedError,
    SnapshotExpiredError,
)
from infra.archive.tables import Table
from infra.storage.errors import PermanentStorageError, TransientStorageError
from infra.storage.objects import list_files, remove_tree, replace
from tests.infra.archive.builders import GROWN, ITEMS, SCORED, add, docs_in, items
from tests.infra.storage.s3_server import S3, lose_the_reply, refuse

NOW = timedelta(0)


@pytest.fixture
def archive(storage: str) -> Archive:
    return Archive(f"{storage}/archive", writer="tests")


@pytest.fixture
def here(tmp_path: Path) -> Archive:
    return Archive(str(tmp_path / "archive"))


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


def test_a_table_grows_by_nullable_columns_in_either_direction(archive: Archive) -> None:
    add(archive, [1])
    add(archive, [2], table=GROWN)
    add(archive, [3])
    found = archive.snapshot()
    assert found.read("items", ["doc", "score"]).to_pydict() == {"doc": [1, 2, 3], "score": [None, 0.5, None]}
    assert found.read("items", ["score", "_commit"]).to_pydict() == {"score": [None, 0.5, None], "_commit": [1, 2, 3]}
    assert found.schema("items").names == ["task", "doc", "text", "score"]


def test_two_writers_may_add_the_same_column_and_not_two_types_of_it(archive: Archive) -> None:
    racing = [Archive(archive.url).transaction() for _ in range(3)]
    for doc, (transaction, table) in enumerate(zip(racing, (GROWN, GROWN, SCORED), strict=True)):
        transaction.append(table, items([doc], table=table))
        transaction.prepare()
    racing[0].commit()
    racing[1].commit()
    with pytest.raises(SchemaConflictError, match=r"table 'items', column 'score': it is double and was declared as string; a type never"):
        racing[2].commit()
    assert docs_in(archive) == [0, 1]


def test_declarations_that_do_not_fit_are_refused_by_column(here: Archive) -> None:
    required = ITEMS.schema.append(pa.field("kind", pa.string(), nullable=False))
    with here.transaction() as transaction:
        transaction.append(Table("items", required, ITEMS.key), pa.table({"task": ["a"], "doc": [1], "text": ["b"], "kind": ["c"]}))
    conflicts = {
        "column 'kind': it is required and the new declaration drops it": ITEMS,
        "column 'more': a column that is added must be nullable": Table(
            "items", required.append(pa.field("more", pa.string(), nullable=False)), ITEMS.key
        ),
        "column 'kind': it is required and the new declaration lets it be null": Table(
            "items", ITEMS.schema.append(pa.field("kind", pa.string())), ITEMS.key
        ),
        "its primary key is": Table("items", required, ("task",)),
    }
    for message, table in conflicts.items():
        transaction = here.transaction()
        transaction.append(table, table.schema.empty_table())
        with pytest.raises(SchemaConflictError, match=message):
            transaction.commit()
    assert here.snapshot().number == 1


def test_rows_that_do_not_fit_their_declaration_are_refused_by_column(here: Archive) -> None:
    row = {"task": ["a"], "doc": [1], "text": ["b"]}
    unfit = {
        "column 'x': the rows have it": row | {"x": [1]},
        "column 'doc': it is int64 and the rows have string": row | {"doc": ["1"]},
        "column 'doc': it is required and the rows do not have it": {"task": ["a"]},
        "column 'task': it is required and null in row 1": {"task": ["a", None], "doc": [1, 2]},
    }
    for message, rows in unfit.items():
        with pytest.raises(SchemaConflictError, match=message), here.transaction() as transaction:
            transaction.append(ITEMS, pa.table(rows))
    assert here.snapshot().tables == ()


def test_tables_that_can_not_be_are_refused() -> None:
    schema = ITEMS.schema
    for message, make in {
        "choose another": lambda: Table("Items", schema, ("doc",)),
        "one column or more": lambda: Table("items", schema, ()),
        "the primary key names it": lambda: Table("items", schema, ("id",)),
        "keys are strings or integers": lambda: Table("items", schema.append(pa.field("x", pa.float64())), ("x",)),
        "belong to the archive": lambda: Table("items", schema.append(pa.field("_commit", pa.int64())), ("doc",)),
    }.items():
        with pytest.raises(SchemaConflictError, match=message):
            make()


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


def test_compaction_changes_nothing_that_a_reader_sees(archive: Archive) -> None:
    for doc in range(4):
        add(archive, [10 * doc, 10 * doc + 1], table=GROWN if doc % 2 else ITEMS)
    pinned = archive.snapshot()
    columns = ["doc", "score", "_commit", "text"]
    before, later = pinned.read("items", columns), pinned.read("items", columns, after=2)
    assert archive.compact() == 1
    found = archive.snapshot()
    assert len(found.shard_urls("items")) == 1
    assert found.read("items", columns) == before == pinned.read("items", columns)
    assert found.read("items", columns, after=2) == later
    assert later.column("doc").to_pylist() == [20, 21, 30, 31]
    assert found.read("items", after=5).num_rows == 0
    with pytest.raises(DuplicateKeyError, match="doc=11"):
        add(archive, [11])
    add(archive, [50])
    assert archive.compact() == 1
    assert archive.snapshot().read("items", ["doc", "_commit"]).to_pydict() == {
        "doc": [0, 1, 10, 11, 20, 21, 30, 31, 50],
        "_commit": [1, 1, 2, 2, 3, 3, 4, 4, 6],
    }
    archive.snapshot().verify()


def test_a_compaction_whose_input_is_gone_does_nothing(archive: Archive) -> None:
    for doc in range(3):
        add(archive, [doc])
    first, second = (Archive(archive.url).compactions()[0].write() for _ in range(2))
    add(archive, [3])
    assert first.commit()
    number = archive.snapshot().number
    assert not second.commit()
    assert archive.snapshot().number == number
    assert docs_in(archive) == [0, 1, 2, 3]


def test_a_compaction_that_lost_one_of_its_inputs_does_nothing(here: Archive) -> None:
    for doc in range(3):
        add(here, [doc])
    first, *others = here.snapshot().shards("items")
    whole = Compaction(Chain(here.url), "items", (first, *others), "").write()
    assert Compaction(Chain(here.url), "items", tuple(others), "").write().commit()
    assert not whole.commit()
    assert docs_in(here) == [0, 1, 2]


def test_a_compaction_that_was_collected_before_its_commit_does_nothing(here: Archive) -> None:
    for doc in range(3):
        add(here, [doc])
    (slow,) = here.compactions()
    slow.write()
    here.collect(NOW)
    assert not slow.commit()
    assert docs_in(here) == [0, 1, 2]
    here.snapshot().verify()


def test_a_compaction_whose_inputs_were_collected_before_it_read_them_does_nothing(here: Archive) -> None:
    for doc in range(3):
        add(here, [doc])
    (late,) = Archive(here.url).compactions()
    here.compact()
    here.collect(NOW)
    assert not late.write().commit()
    assert docs_in(here) == [0, 1, 2]


def test_an_old_shard_that_was_compacted_just_now_stays_for_the_readers_of_it(here: Archive) -> None:
    for doc in range(3):
        add(here, [doc])
    pinned = here.snapshot()
    for file in Path(here.url).rglob("*"):
        os.utime(file, (0, 0))
    here.compact()
    assert here.collect(timedelta(days=1)).files == ()
    assert pinned.read("items").num_rows == 3


def test_collection_removes_what_nobody_needs_and_a_snapshot_of_it_says_that_it_expired(archive: Archive) -> None:
    for doc in range(3):
        with archive.transaction() as transaction:
            transaction.append(ITEMS, items([doc]))
            transaction.put_blob(f"{doc}", b"kept")
    pinned = archive.snapshot()
    archive.compact()
    assert archive.collect(timedelta(days=1)).files == ()
    assert pinned.read("items").num_rows == 3
    removed = archive.collect(NOW)
    assert len(removed.files) == 12  # 3 shards of each of 2 tables, each with its keys
    assert removed.manifests >= 5
    assert archive.collect(NOW).files == ()
    with pytest.raises(SnapshotExpiredError, match="take a new snapshot"):
        pinned.read("items")
    found = Archive(archive.url).snapshot()
    assert found.read("items", ["doc"]).column("doc").to_pylist() == [0, 1, 2]
    assert found.blobs == {"0": 4, "1": 4, "2": 4}
    found.verify()
    with pytest.raises(ArchiveNotFoundError, match="commit 1 was collected"):
        archive.snapshot_at(1)
    assert add(archive, [3]) == found.number + 1


def test_what_a_killed_writer_left_is_collected_and_a_writer_that_only_slept_is_refused(archive: Archive) -> None:
    add(archive, [1])
    sleeper = Archive(archive.url).transaction()
    sleeper.append(ITEMS, items([2]))
    sleeper.prepare()
    awake = archive.transaction()
    assert archive.collect(timedelta(days=1)).files == ()
    assert [name.rpartition("/")[2] for name in archive.collect(NOW).files] == ["items-00000.keys", "items-00000.parquet"]
    with pytest.raises(FencedError, match="write its rows again"):
        sleeper.commit()
    awake.append(ITEMS, items([2]))
    awake.commit()
    assert docs_in(archive) == [1, 2]


def test_a_writer_that_slept_and_goes_on_is_refused_where_it_notices(here: Archive) -> None:
    add(here, [1])
    transaction = here.transaction()
    transaction.append(ITEMS, items([2]))
    here.collect(NOW)
    with pytest.raises(FencedError, match="write its rows again"):
        transaction.append(GROWN, items([3], table=GROWN))
    with pytest.raises(ArchiveError, match="is dropped; begin another"):
        transaction.commit()
    assert docs_in(here) == [1]


def test_a_writer_that_slept_through_a_collection_can_not_fork_history(archive: Archive) -> None:
    add(archive, [0])
    sleeper = Archive(archive.url)
    sleeper.snapshot()
    for doc in range(1, 4):
        add(archive, [doc])
    assert archive.collect(NOW).manifests >= 3
    assert add(sleeper, [9]) == 5
    assert docs_in(archive) == docs_in(sleeper) == [0, 1, 2, 3, 9]


def test_an_earlier_commit_can_be_read(archive: Archive) -> None:
    add(archive, [1])
    add(archive, [2])
    assert archive.snapshot_at(1).read("items", ["doc"]).column("doc").to_pylist() == [1]
    with pytest.raises(ArchiveNotFoundError, match="commit 7 never was"):
        archive.snapshot_at(7)


def test_an_archive_that_is_not_there_says_so(archive: Archive) -> None:
    with pytest.raises(ArchiveNotFoundError, match="no archive lies at"):
        archive.snapshot()


def test_polars_and_duckdb_read_the_shards_as_the_archive_does(here: Archive) -> None:
    for doc in range(5):
        add(here, [doc, doc + 100], table=GROWN if doc > 2 else ITEMS)
    here.compact(target_bytes=4_000)
    add(here, [50], table=GROWN)
    found = here.snapshot()
    urls = list(found.shard_urls("items"))
    assert len(urls) > 2
    expected = found.read("items").to_pylist()
    assert pl.concat([pl.read_parquet(url) for url in urls], how="diagonal").to_dicts() == expected
    with duckdb.connect() as connection:
        query = "select * from read_parquet(?, union_by_name=true) order by doc"
        by_duckdb = connection.sql(query, params=[urls]).to_arrow_table()
    assert by_duckdb.to_pylist() == sorted(expected, key=lambda row: row["doc"])


def test_polars_reads_a_shard_list_of_one_schema_at_once(here: Archive) -> None:
    for doc in range(4):
        add(here, [doc])
    here.compact(target_bytes=4_000)
    add(here, [9])
    assert pl.read_parquet(list(here.snapshot().shard_urls("items"))).to_dicts() == here.snapshot().read("items").to_pylist()


def test_types_survive_storage_and_compaction(here: Archive) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int32()),
            pa.field("metrics", pa.map_(pa.string(), pa.float64())),
            pa.field("choices", pa.list_(pa.struct([("text", pa.string()), ("loglik", pa.float64())]))),
            pa.field("raw", pa.binary()),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("large", pa.large_string()),
        ]
    )
    table = Table("typed", schema, key=("id",))
    row = {"metrics": [("acc", 0.5), ("nan", float("inf"))], "choices": [{"text": "a", "loglik": -1.5}], "raw": b"\0\xff", "large": "x"}
    for number in range(3):
        with here.transaction() as transaction:
            transaction.append(table, pa.RecordBatch.from_pylist([{"id": number, **(row if number else {})}], schema))
    before = here.snapshot().read("typed")
    assert here.compact() == 1
    assert here.snapshot().read("typed").equals(before)
    assert before.schema.equals(table.schema)
    assert before.to_pylist()[1]["metrics"] == row["metrics"]


def test_large_appends_are_split_into_shards_and_row_groups(here: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.archive.transaction.SHARD_BYTES", 40_000)
    with here.transaction() as transaction:
        transaction.append(ITEMS, (items(range(start, start + 5_000)) for start in range(0, 40_000, 5_000)))
    found = here.snapshot()
    assert len(found.shard_urls("items")) > 1
    assert docs_in(here) == list(range(40_000))
    assert max(batch.num_rows for batch in found.batches("items", rows=1_000)) <= 1_000


def test_reading_holds_a_row_group_and_not_the_table(here: Archive) -> None:
    text = "x" * 1_000
    schema = ITEMS.schema
    with here.transaction() as transaction:
        for start in range(0, 100_000, 5_000):
            rows = {"task": ["t"] * 5_000, "doc": range(start, start + 5_000), "text": [f"{doc}{text}" for doc in range(5_000)]}
            transaction.append(ITEMS, pa.RecordBatch.from_pydict(rows, schema))
    before = pa.total_allocated_bytes()
    peak = seen = 0
    for batch in here.snapshot().batches("items"):
        peak = max(peak, pa.total_allocated_bytes() - before)
        seen += batch.nbytes
    assert seen > 100_000_000
    assert peak < 40_000_000  # a group of 8,192 rows is 8 MB: the encoded one, the decoded one, and the batch


def test_a_shard_or_a_sidecar_that_was_changed_is_noticed(here: Archive) -> None:
    add(here, [1])
    found = here.snapshot()
    (shard,) = found.shards("items")
    replace(f"{here.url}/{shard.keys_file}", b"\0" * 16)
    with pytest.raises(CorruptArchiveError, match=r"items-00000\.keys is missing or is not what was committed"):
        add(Archive(here.url), [2])
    replace(f"{here.url}/{shard.file}", b"\0" * shard.size)
    with pytest.raises(CorruptArchiveError, match=r"items-00000\.parquet is missing or is not"):
        found.verify()


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


def test_an_archive_on_a_users_layer_is_found_again(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAWAY_USERS_PREFIX", storage)
    monkeypatch.setenv("SEAWAY_USER", "ada")
    fsspec.get_filesystem_class("users").clear_instance_cache()
    archive = Archive("users://runs/archive")
    add(archive, [1])
    assert archive.snapshot().shard_urls("items")[0].startswith(f"{storage}/users/ada/runs/archive/commit-")
    assert docs_in(archive) == [1]
    fsspec.get_filesystem_class("users").clear_instance_cache()
