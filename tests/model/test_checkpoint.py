"""Checkpoints: complete or invisible."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infra.storage.errors import StorageError
from model.boxes import Box, slices
from model.checkpoint import MARKER, STATE, CheckpointMismatchError, CheckpointStore
from model.run import kept_folder


class Everything:
    """Takes all there is."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def wants(self, key: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        self.arrays[key] = np.empty(shape, dtype)
        return True

    def take(self, key: str, shape: tuple[int, ...], inside: Box, given: np.ndarray) -> None:
        self.arrays[key][slices(inside)] = given


def arrays_at(step: int) -> dict[str, np.ndarray]:
    return {"parameters/w": np.full((2, 3), step, np.float32), "optimizer/count": np.array(step, np.int32)}


def store_with(directory: Path, *steps: int) -> CheckpointStore:
    store = CheckpointStore(str(directory), "run-a")
    for step in steps:
        store.save(step, arrays_at(step), b"rows to %d" % step)
    return store


def folders(directory: Path) -> list[Path]:
    return sorted((directory / "checkpoints").iterdir())


def test_an_empty_scratch_directory_has_no_checkpoint(tmp_path: Path) -> None:
    assert CheckpointStore(str(tmp_path / "never-made"), "run-a").newest(Everything) is None


def test_the_newest_committed_checkpoint_comes_back_bit_for_bit(tmp_path: Path) -> None:
    restored = store_with(tmp_path, 3, 6, 9).newest(Everything)
    assert restored is not None
    assert (restored.step, restored.journal) == (9, b"rows to 9")
    assert {name: value.tobytes() for name, value in restored.taken.arrays.items()} == {
        name: value.tobytes() for name, value in arrays_at(9).items()
    }
    assert restored.taken.arrays["optimizer/count"].shape == ()


@pytest.mark.parametrize("lost", [MARKER, STATE, "journal.json"])
def test_a_checkpoint_that_lost_a_file_is_invisible(tmp_path: Path, lost: str) -> None:
    store = store_with(tmp_path, 3, 6)
    (folders(tmp_path)[-1] / lost).unlink()
    restored = store.newest(Everything)
    assert restored is not None
    assert restored.step == 3


@pytest.mark.parametrize("torn", [MARKER, STATE, "journal.json"])
def test_a_checkpoint_with_a_half_written_file_is_invisible(tmp_path: Path, torn: str) -> None:
    store = store_with(tmp_path, 3, 6)
    path = folders(tmp_path)[-1] / torn
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    restored = store.newest(Everything)
    assert restored is not None
    assert restored.step == 3


def test_a_flipped_byte_makes_a_checkpoint_invisible(tmp_path: Path) -> None:
    store = store_with(tmp_path, 3, 6)
    path = folders(tmp_path)[-1] / STATE
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    restored = store.newest(Everything)
    assert restored is not None
    assert restored.step == 3


def test_saving_removes_superseded_and_torn_checkpoints_and_keeps_two(tmp_path: Path) -> None:
    store = store_with(tmp_path, 3)
    torn = tmp_path / "checkpoints" / "step-000000005-deadbeef"
    torn.mkdir()
    (torn / STATE).write_bytes(b"half")
    for step in (6, 9, 12):
        store.save(step, arrays_at(step), b"")
    assert [path.name[:14] for path in folders(tmp_path)] == ["step-000000009", "step-000000012"]


def test_a_save_is_kept_even_if_damaged_later_ones_lie_beside_it(tmp_path: Path) -> None:
    store = store_with(tmp_path, 9, 12)
    for folder in folders(tmp_path):
        (folder / STATE).write_bytes(b"")
    store.save(6, arrays_at(6), b"")
    restored = store.newest(Everything)
    assert restored is not None
    assert restored.step == 6


def test_nothing_is_removed_before_what_supersedes_it_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_with(tmp_path, 3, 6)
    before = folders(tmp_path)

    def full(url: str, data: bytes) -> None:
        if url.endswith(MARKER):
            raise StorageError("the disk is full")

    monkeypatch.setattr("model.checkpoint.replace", full)
    with pytest.raises(StorageError):
        store.save(9, arrays_at(9), b"")
    assert set(before) < set(folders(tmp_path))
    restored = store.newest(Everything)
    assert restored is not None
    assert restored.step == 6


def test_a_step_that_is_kept_is_never_removed_by_later_ones(tmp_path: Path) -> None:
    store_with(tmp_path / kept_folder(3), 3)
    store_with(tmp_path, 3, 6, 9, 12)
    kept = CheckpointStore(str(tmp_path / kept_folder(3)), "run-a").newest(Everything)
    assert kept is not None
    assert (kept.step, kept.taken.arrays["optimizer/count"]) == (3, 3)


def test_all_files_of_a_committed_step_are_verified_before_it_is_published(tmp_path: Path) -> None:
    store, beats = store_with(tmp_path, 3, 6), []
    (found,) = store.whole_at(6, lambda: beats.append(1)) or ()
    assert Path(found).parent == folders(tmp_path)[-1]
    assert beats
    assert store.whole_at(9, lambda: None) is None
    Path(found).write_bytes(Path(found).read_bytes()[:-1] + b"x")
    assert store.whole_at(6, lambda: None) is None
    assert CheckpointStore(str(tmp_path), "run-b").whole_at(3, lambda: None) is None


def test_another_runs_checkpoint_is_refused_and_kept(tmp_path: Path) -> None:
    store_with(tmp_path, 3)
    with pytest.raises(CheckpointMismatchError, match="run-a, this is run run-b"):
        CheckpointStore(str(tmp_path), "run-b").newest(Everything)
    assert len(folders(tmp_path)) == 1


def test_a_checkpoint_survives_a_move_of_its_scratch_directory(tmp_path: Path) -> None:
    store_with(tmp_path / "a", 3)
    shutil.move(tmp_path / "a", tmp_path / "b")
    restored = CheckpointStore(str(tmp_path / "b"), "run-a").newest(Everything)
    assert restored is not None
    assert restored.step == 3


def test_checkpoints_work_without_a_local_disk() -> None:
    store = CheckpointStore("memory://scratch/checkpoint-test", "run-a")
    for step in (3, 6, 9):
        store.save(step, arrays_at(step), b"")
    restored = store.newest(Everything)
    assert restored is not None
    assert restored.step == 9
