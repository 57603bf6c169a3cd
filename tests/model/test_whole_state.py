"""A published state is put together from parts without ever being in memory whole."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infra.artifacts.writer import Writer
from model import array_files
from model.arrays import ArraysMismatchError, encode
from model.whole_state import WholeState, write_whole

BANK = np.arange(2 * 6 * 8 * 5, dtype=np.float32).reshape(2, 6, 8, 5)
COUNT = np.array(7, np.int32)
LIKE = {"bank": jax.ShapeDtypeStruct(BANK.shape, jnp.float32), "count": jax.ShapeDtypeStruct((), jnp.int32)}
DECLARED = {name: (tuple(leaf.shape), np.dtype(leaf.dtype)) for name, leaf in LIKE.items()}


def parts_in(folder: Path) -> list[str]:
    """Two processes' files: the bank is cut along three axes, the count is the first one's."""
    files: list[dict[str, np.ndarray]] = [{"count": COUNT}, {}]
    for number, (e, i, o) in enumerate(np.ndindex(3, 2, 2)):
        cut = BANK[:, 2 * e : 2 * e + 2, 4 * i : 4 * i + 4, (0, 3)[o] : (3, 5)[o]]
        files[number % 2][f"bank[0:2,{2 * e}:{2 * e + 2},{4 * i}:{4 * i + 4},{(0, 3)[o]}:{(3, 5)[o]}]"] = cut
    for number, pieces in enumerate(files):
        (folder / f"{number}.safetensors").write_bytes(encode(pieces))
    return [str(folder / f"{number}.safetensors") for number in range(2)]


@pytest.mark.parametrize("slab_bytes", [4, 60, 10**6], ids=["an entry", "some rows", "everything"])
def test_a_file_of_whole_arrays_has_the_same_bytes_whatever_was_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slab_bytes: int
) -> None:
    monkeypatch.setattr(array_files, "SLAB_BYTES", slab_bytes)
    out = Writer(str(tmp_path / "attempt"), scratch_url=str(tmp_path / "scratch"))
    with WholeState("here", parts_in(tmp_path), LIKE) as state:
        write_whole("state.safetensors", DECLARED, state, out, lambda: None)
    assert (tmp_path / "attempt" / "state.safetensors").read_bytes() == encode({"bank": BANK, "count": COUNT})


def test_no_more_than_a_slab_of_a_state_is_ever_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "SLAB_BYTES", 100)
    sizes: list[int] = []
    read_box = WholeState.box
    monkeypatch.setattr(WholeState, "box", lambda self, name, box: sizes.append((found := read_box(self, name, box)).nbytes) or found)
    out = Writer(str(tmp_path / "attempt"), scratch_url=str(tmp_path / "scratch"))
    with WholeState("here", parts_in(tmp_path), LIKE) as state:
        write_whole("state.safetensors", DECLARED, state, out, lambda: None)
    assert sum(sizes) == BANK.nbytes + COUNT.nbytes
    assert max(sizes) <= 100


def test_the_other_processes_walk_beside_the_one_that_writes_and_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.whole_state.SLAB_BYTES", 100)
    out, beats = Writer(str(tmp_path / "attempt"), scratch_url=str(tmp_path / "scratch")), [0, 0]
    with WholeState("here", parts_in(tmp_path), LIKE) as state:
        for number, own in enumerate((state, None)):

            def beat(number: int = number) -> None:
                beats[number] += 1

            write_whole("state.safetensors", DECLARED, own, out, beat)
    assert beats[0] == beats[1] > 0
    assert [entry.name for entry in out.files] == ["state.safetensors"]


def test_a_part_that_is_not_there_is_missed_before_anything_is_written(tmp_path: Path) -> None:
    first, _ = parts_in(tmp_path)
    with pytest.raises(ArraysMismatchError, match=r"here doesn't hold this model's arrays: bank is float32"):
        WholeState("here", [first], LIKE)
