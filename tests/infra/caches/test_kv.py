"""The key-value cache: exact bytes or a miss, whatever happened to its tiers."""

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.caches import kv
from infra.caches.key import cache_key
from infra.caches.kv import KvCache, object_url, packed, unpacked
from infra.storage.objects import list_files, read_or_none, remove_tree, replace

KEY = "ab" * 32


def entry_file(directory: Path, key: str = KEY) -> Path:
    return directory / key[:2] / key


def test_what_was_put_is_found_by_the_next_process_and_by_another_machine(storage: str, tmp_path: Path) -> None:
    with KvCache(tmp_path / "here", storage) as cache:
        cache.put(KEY, b"value")
        assert cache.get(KEY) == b"value"
        assert cache.close() == 0
    assert KvCache(tmp_path / "here").get(KEY) == b"value"
    elsewhere = KvCache(tmp_path / "elsewhere", storage)
    assert elsewhere.get(KEY) == b"value"
    remove_tree(storage)
    assert KvCache(tmp_path / "elsewhere").get(KEY) == b"value", "a shared hit is kept at hand"
    assert elsewhere.get("cd" * 32) is None


damages = st.one_of(
    st.tuples(st.just("truncate"), st.integers(0, 200)),
    st.tuples(st.just("flip"), st.integers(0, 10_000)),
    st.tuples(st.just("append"), st.integers(1, 20)),
    st.tuples(st.just("swap"), st.just(0)),
)


@given(value=st.binary(max_size=100), damage=damages)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_damaged_entry_is_a_miss_and_never_other_bytes(value: bytes, damage: tuple[str, int]) -> None:
    kind, at = damage
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        KvCache(directory).put(KEY, value)
        whole = entry_file(directory).read_bytes()
        if kind == "truncate":
            damaged = whole[:at]
        elif kind == "flip":
            damaged = bytearray(whole)
            damaged[at % len(whole)] ^= 1
        elif kind == "append":
            damaged = whole + b"x" * at
        else:
            damaged = packed("cd" * 32, value)  # a whole entry, of another key
        entry_file(directory).write_bytes(damaged)
        found = KvCache(directory).get(KEY)
        assert found == (value if bytes(damaged) == whole else None)


@given(st.binary(), st.text("0123456789abcdef", min_size=64, max_size=64))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_packing_is_undone_by_unpacking(value: bytes, key: str) -> None:
    assert unpacked(key, packed(key, value)) == value


def test_a_truncated_object_is_a_miss_and_is_written_anew(storage: str, tmp_path: Path) -> None:
    replace(object_url(storage, KEY), packed(KEY, b"value")[:-1])
    cache = KvCache(tmp_path / "here", storage)
    assert cache.get_or_compute(KEY, lambda: b"value") == b"value"
    assert cache.close() == 0
    assert read_or_none(object_url(storage, KEY)) == packed(KEY, b"value")


def test_many_writers_and_readers_never_see_a_part(storage: str, tmp_path: Path) -> None:
    values = {f"{number:064x}": os.urandom(50_000) for number in range(4)}

    def work(number: int) -> None:
        with KvCache(tmp_path / str(number % 2), storage) as cache:
            for key, value in values.items():
                assert cache.get(key) in (None, value)
                cache.put(key, value)
                assert cache.get(key) == value

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert sorted(name.rpartition("/")[2] for name in list_files(storage)) == sorted(values)
    assert {path.name for path in (tmp_path / "0").glob("*/*")} == set(values), "no temporary file is left"


@pytest.mark.parametrize("why", ["a file is in the way", "the parent is missing and can't be made"])
def test_a_directory_that_cannot_be_used_costs_one_line_and_no_result(tmp_path: Path, caplog: pytest.LogCaptureFixture, why: str) -> None:
    (tmp_path / "file").write_text("")
    directory = tmp_path / "file" if why.startswith("a file") else Path("/proc/nowhere/cache")
    cache = KvCache(directory)
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            key = f"{number:064x}"
            assert cache.get_or_compute(key, lambda: b"computed") == b"computed"
            assert cache.get(key) == b"computed", "memory still serves"
    assert len(caplog.records) == 1
    assert f"directory {directory} can't be used; what it would hold is computed again" in caplog.text


def test_a_read_only_directory_still_serves_what_it_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], capture_output=True, check=False).returncode:
        if os.environ.get("CI") == "true":
            pytest.fail("mounting a tmpfs needs root")
        pytest.skip("this user may not mount a file system")
    try:
        KvCache(disk).put(KEY, b"value")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        cache = KvCache(disk)
        assert cache.get(KEY) == b"value"
        cache.put("cd" * 32, b"new")
        assert cache.get("cd" * 32) == b"new"
        assert len(caplog.records) == 1
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_store_that_is_away_costs_one_line_and_no_result(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    cache = KvCache(tmp_path / "here", str(tmp_path / "file" / "store"))
    for number in range(3):
        assert cache.get_or_compute(f"{number:064x}", lambda: b"computed") == b"computed"
    assert cache.close() == 3
    assert len([record for record in caplog.records if "object store" in record.message]) == 1


def test_putting_never_waits_for_the_store_and_closing_waits_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(kv, "create_exclusive", lambda *_: answer.wait(30))
    cache = KvCache(tmp_path, "memory://away")
    started = time.monotonic()
    for number in range(3 * kv.QUEUED_ENTRIES):
        cache.put(f"{number:064x}", b"x")
    assert cache.close(drain_s=0.2) == 3 * kv.QUEUED_ENTRIES
    assert time.monotonic() - started < 20
    answer.set()


def test_a_process_that_ends_has_shared_what_it_put(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from infra.caches.kv import KvCache; "
        f"KvCache(None, sys.argv[1]).put({KEY!r}, b'x' * 1_000_000)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "shared")], check=True, timeout=60)
    assert KvCache(None, str(tmp_path / "shared")).get(KEY) == b"x" * 1_000_000


def test_old_entries_go_by_their_age(storage: str, tmp_path: Path) -> None:
    cache = KvCache(tmp_path / "here", storage)
    cache.put(KEY, b"old")
    assert cache.close() == 0
    assert cache.remove_old(kept_s=3600) == 0
    deadline = time.monotonic() + 30
    while not cache.remove_old(kept_s=0.01):
        assert time.monotonic() < deadline
    cache.remove_old(kept_s=-2)  # clocks of a store may count whole seconds
    assert KvCache(tmp_path / "here", storage).get(KEY) is None
    assert list_files(storage) == {}


def test_memory_keeps_what_was_used_last() -> None:
    cache = KvCache(None, memory_bytes=100)
    for number in range(3):
        cache.put(f"{number:064x}", bytes([number]) * 40)
        cache.get(f"{0:064x}")
    assert [cache.get(f"{number:064x}") is not None for number in range(3)] == [True, False, True]


def test_without_a_key_nothing_is_kept(tmp_path: Path) -> None:
    cache = KvCache(tmp_path, f"memory://{uuid4().hex}")
    cache.put(None, b"x")
    assert cache.get(None) is None
    assert cache.get_or_compute(None, lambda: b"computed") == b"computed"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def made_from(tmp_path: Path) -> dict[str, Path]:
    for name, text in (("kernel.py", "code"), ("tuner.py", "more code"), ("lock.txt", "jax==1")):
        (tmp_path / name).write_text(text)
    return {path.name: path for path in tmp_path.iterdir()}


def test_a_key_changes_with_everything_the_value_is_made_from(made_from: dict[str, Path]) -> None:
    sources, lock = [made_from["kernel.py"], made_from["tuner.py"]], made_from["lock.txt"]
    key = cache_key(sources, lock, {"n": 1}, "cpu")
    assert key is not None
    assert key == cache_key(sources[::-1], lock, {"n": 1}, "cpu")
    others = {
        cache_key(sources, lock, {"n": 2}, "cpu"),
        cache_key(sources, lock, {"n": 1}, "gpu"),
        cache_key(sources[:1], lock, {"n": 1}, "cpu"),
    }
    for path in (sources[0], lock):
        before = path.read_text()
        path.write_text(before + "!")
        others.add(cache_key(sources, lock, {"n": 1}, "cpu"))
        path.write_text(before)
    assert len(others) == 5
    assert key not in others


def test_what_is_unknown_bypasses_the_cache(made_from: dict[str, Path], tmp_path: Path) -> None:
    sources, lock = [made_from["kernel.py"]], made_from["lock.txt"]
    assert cache_key(sources, None, {}, "cpu") is None
    assert cache_key(sources, lock, {}, None) is None
    assert cache_key([], lock, {}, "cpu") is None
    assert cache_key([tmp_path / "missing.py"], lock, {}, "cpu") is None
    assert cache_key(sources, lock, {"n": object()}, "cpu") is None
    assert cache_key([*sources, *sources], lock, {}, "cpu") is None
