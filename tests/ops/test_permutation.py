import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.permutation import MAX_SIZE, key_of, mix64, permute, unpermute


def splitmix_in_plain_integers(value: int) -> int:
    wrap = (1 << 64) - 1
    value = (value + 0x9E3779B97F4A7C15) & wrap
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & wrap
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & wrap
    return value ^ (value >> 31)


@given(st.integers(0, 2**64 - 1))
def test_mixing_agrees_with_splitmix64_in_unbounded_integers(value: int) -> None:
    assert int(mix64(np.array([value], np.uint64))[0]) == splitmix_in_plain_integers(value)


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**62))
def test_every_index_is_hit_exactly_once(size: int, seed: int) -> None:
    assert sorted(permute(np.arange(size), size, key_of(seed)).tolist()) == list(range(size))


@settings(deadline=None)
@given(st.integers(1, MAX_SIZE), st.integers(0, 2**62), st.data())
def test_unpermuting_gives_the_index_back(size: int, seed: int, data: st.DataObject) -> None:
    indices = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20)))
    assert unpermute(permute(indices, size, key_of(seed)), size, key_of(seed)).tolist() == indices.tolist()
    assert permute(unpermute(indices, size, key_of(seed)), size, key_of(seed)).tolist() == indices.tolist()


@pytest.mark.parametrize("size", [65_536, 65_535, 32_769])
def test_successive_differences_are_as_varied_as_those_of_a_random_shuffle(size: int) -> None:
    values = permute(np.arange(size), size, key_of(1))
    differences, counts = np.unique(np.diff(values) % size, return_counts=True)
    assert len(differences) / size >= 0.6  # a random permutation gives 1 - 1/e = 0.632
    assert counts.max() <= 12  # random: 7-9; an affine round gave 720


def test_neighbouring_seeds_share_no_more_places_than_chance() -> None:
    size = 10_000
    same = np.count_nonzero(permute(np.arange(size), size, key_of(1)) == permute(np.arange(size), size, key_of(2)))
    assert same < 12  # Poisson with mean 1


def test_a_key_per_index_gives_what_each_key_alone_gives() -> None:
    keys = key_of(7, np.arange(5))
    together = permute(np.full(5, 3), 100, keys)
    assert together.tolist() == [int(permute(np.array([3]), 100, key)[0]) for key in keys]


def test_a_size_per_index_gives_what_each_size_alone_gives() -> None:
    sizes = np.array([1, 2, 3, 4, 5, 16, 17, 64, 65, 2**40, 2**62])
    together = permute(sizes - 1, sizes, key_of(7))
    assert together.tolist() == [int(permute(np.array([size - 1]), size, key_of(7))[0]) for size in sizes.tolist()]


@pytest.mark.parametrize("size", [2**31 + 11, 2**40 + 3, MAX_SIZE])
def test_sizes_beyond_32_bits_neither_overflow_nor_collide(size: int) -> None:
    values = permute(np.arange(size - 1000, size), size, key_of(5))
    assert values.dtype == np.int64
    assert ((values >= 0) & (values < size)).all()
    assert len(np.unique(values)) == 1000
    assert values.max() > size // 2


@pytest.mark.parametrize(("index", "size"), [(5, 5), (-1, 5), (0, 0), (0, MAX_SIZE + 1)])
def test_an_index_or_a_size_out_of_range_is_refused(index: int, size: int) -> None:
    with pytest.raises(ValueError, match="not"):
        permute(np.array([index]), size, key_of(0))


def test_the_order_of_key_parts_matters() -> None:
    assert key_of(1, 2) != key_of(2, 1)
    assert key_of(0) != key_of(0, 0)
