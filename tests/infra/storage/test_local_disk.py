"""Disks that are full, read-only, or forget to answer."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.artifacts.writer import Writer
from infra.storage.errors import PermanentStorageError, TransientStorageError
from infra.storage.objects import create_exclusive, list_names, read_or_none, replace


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, check=False)
    if mounted.returncode:
        if os.environ.get("CI") == "true":
            pytest.fail("mounting a tmpfs needs root")
        pytest.skip("this user may not mount a file system; the injected errors below are tested all the same")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def failing(call: Callable[..., Any], code: int, *, times: int, after_doing_it: bool = False) -> Callable[..., Any]:
    """A system call that fails with `code` a number of times."""
    left = [times]

    def faulty(*args: Any, **kwargs: Any) -> Any:
        if left[0] == 0:
            return call(*args, **kwargs)
        left[0] -= 1
        if after_doing_it:
            call(*args, **kwargs)
        raise OSError(code, os.strerror(code))

    return faulty


@pytest.mark.parametrize("write", [create_exclusive, replace])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(small_disk: Path, write: Callable[[str, bytes], Any]) -> None:
    with pytest.raises(PermanentStorageError, match=rf"can't \w+ {small_disk}/x: the disk is full; free space there"):
        write(f"{small_disk}/x", b"x" * 1_000_000)
    assert list_names(str(small_disk)) == ()


def test_a_program_that_fills_the_disk_hears_which_file(small_disk: Path) -> None:
    out = Writer(f"{small_disk}/attempt-1", scratch_url="")
    with (
        pytest.raises(PermanentStorageError, match=r"can't write .*/attempt-1/part\.bin: the disk is full"),
        out.open("part.bin") as stream,
    ):
        stream.write(b"x" * 1_000_000)
    assert out.files == ()


@pytest.mark.parametrize("write", [create_exclusive, replace])
def test_a_read_only_root_is_one_sentence(small_disk: Path, write: Callable[[str, bytes], Any]) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(PermanentStorageError, match=rf"{small_disk}/a/x: the file system is mounted read-only; choose a root"):
        write(f"{small_disk}/a/x", b"x")
    with (
        pytest.raises(PermanentStorageError, match=r"can't write .*/part\.bin: the file system is mounted read-only"),
        Writer(f"{small_disk}/attempt-1", scratch_url="").open("part.bin"),
    ):
        pass


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (errno.ENOSPC, "the disk is full; free space"),
        (errno.EROFS, "mounted read-only; choose a root"),
        (errno.EACCES, "permission denied; give this user write access"),
        (errno.EDQUOT, "the disk quota is used up; free space"),
    ],
)
def test_permanent_errors_are_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, sentence: str) -> None:
    monkeypatch.setattr(os, "fsync", failing(os.fsync, code, times=1))
    with pytest.raises(PermanentStorageError, match=sentence):
        create_exclusive(f"{tmp_path}/x", b"x")
    assert list_names(str(tmp_path)) == ()


def test_a_disk_that_stumbles_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", failing(os.fsync, errno.EIO, times=2))
    assert create_exclusive(f"{tmp_path}/x", b"x")
    assert list_names(str(tmp_path)) == ("x",)


def test_a_disk_that_stays_away_is_a_transient_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.storage.errors.FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(os, "fsync", failing(os.fsync, errno.ESTALE, times=1000))
    with pytest.raises(TransientStorageError, match=rf"can't create {tmp_path}/x: .*check that it runs, then run again"):
        create_exclusive(f"{tmp_path}/x", b"x")


def test_a_network_disk_that_loses_the_reply_of_a_link_has_still_created_the_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(os.link, errno.ETIMEDOUT, times=1, after_doing_it=True))
    assert create_exclusive(f"{tmp_path}/x", b"attempt 17")
    assert read_or_none(f"{tmp_path}/x") == b"attempt 17"


def test_a_disk_without_hard_links_is_refused_rather_than_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", failing(os.link, errno.EPERM, times=1))
    with pytest.raises(PermanentStorageError, match="has no hard links; choose another root"):
        create_exclusive(f"{tmp_path}/x", b"x")


def test_a_writer_that_dies_before_its_create_leaves_nothing_to_be_read(tmp_path: Path) -> None:
    script = (
        "import os, sys; os.link = lambda *_: os._exit(9)\n"
        "from infra.storage.objects import create_exclusive\n"
        "create_exclusive(sys.argv[1], b'x' * 1000)"
    )
    died = subprocess.run([sys.executable, "-c", script, f"{tmp_path}/x"], check=False)
    assert died.returncode == 9
    assert read_or_none(f"{tmp_path}/x") is None
    assert all(name.startswith(".") for name in list_names(str(tmp_path)))
    assert create_exclusive(f"{tmp_path}/x", b"next")


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "parent").write_text("a file")
    with pytest.raises(PermanentStorageError, match="a parent of this path is a file"):
        create_exclusive(f"{tmp_path}/parent/x", b"x")
