# mypy: allow-untyped-defs, allow-untyped-calls
"""Byte-level BPE (Sennrich et al. 2016) over whole text columns; compiled, without the GIL.

Merges are looked up in an open-addressing table of pairs. Short pieces that came before are copied from a cache of one
slot each, whose entry is half a cache line: the piece's bytes and its tokens. Short pieces are merged by scanning, long
ones with a heap: a megabyte of letters costs n log n. Either way the pair of least rank is merged first, of several the
leftmost.
"""

import numpy as np

from ops.hashing.compiled import kernel
from ops.hashing.kernels import mix64
from ops.hashing.pieces import piece_end

SCANNED_BYTES = 48  # beyond it the heap is faster than scanning for the least rank again and again
CACHED_BYTES = 15  # two words with the length; longer pieces are one in a hundred
_NONE = np.uint64(0xFFFFFFFFFFFFFFFF)  # no merge: a rank that loses to all
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_ONE, _HALF, _LOW = np.uint64(1), np.uint64(32), np.uint64(0xFFFFFFFF)
_TOP, _NO_TOKEN = np.uint64(56), np.uint64(0xFFFFFFFF)


@kernel
def _key_of(left, right):
    return (np.uint64(left) << _HALF | np.uint64(right)) + _ONE


@kernel
def _slot_of(pairs, key):
    """Where a pair stands in the table, or would: then its key there is 0."""
    mask = np.uint64(pairs.shape[0] - 1)
    slot = mix64(key) & mask
    while pairs[slot, 0] != key and pairs[slot, 0] != 0:
        slot = (slot + _ONE) & mask
    return slot


@kernel
def fill_pairs(lefts, rights, merged, pairs):
    """Put every merge into the table [slots, 2] of uint64: the pair; its rank, and in the lower half the token it makes."""
    for rank in range(lefts.size):
        key = _key_of(lefts[rank], rights[rank])
        slot = _slot_of(pairs, key)
        if pairs[slot, 0] == 0:
            pairs[slot, 0] = key
            pairs[slot, 1] = np.uint64(rank) << _HALF | np.uint64(merged[rank])


@kernel
def _merge_of(pairs, left, right):
    """Rank and token of a pair as the table has them, `_NONE` if they do not merge."""
    slot = _slot_of(pairs, _key_of(left, right))
    return pairs[slot, 1] if pairs[slot, 0] != 0 else _NONE


@kernel
def _merge_by_scanning(tokens, count, pairs, merges):
    """Merge the first `count` tokens in place; returns how many are left. `merges`: scratch, one for each pair."""
    for i in range(count - 1):
        merges[i] = _merge_of(pairs, tokens[i], tokens[i + 1])
    while count > 1:
        best, place = _NONE, 0
        for i in range(count - 1):
            if merges[i] < best:
                best, place = merges[i], i
        if best == _NONE:
            break
        tokens[place] = np.int32(best & _LOW)
        count -= 1
        for i in range(place + 1, count):
            tokens[i] = tokens[i + 1]
            merges[i - 1] = merges[i]
        if place > 0:
            merges[place - 1] = _merge_of(pairs, tokens[place - 1], tokens[place])
        if place < count - 1:
            merges[place] = _merge_of(pairs, tokens[place], tokens[place + 1])
    return count


@kernel
def _push(heap, size, value):
    at = size
    while at > 0 and heap[(at - 1) // 2] > value:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = value
    return size + 1


@kernel
def _pop(heap, size):
    """The least value, and the heap's new size."""
    least, last = heap[0], heap[size - 1]
    size -= 1
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= last:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last
    return least, size


@kernel
def _merge_by_heap(tokens, count, pairs):
    """Like `_merge_by_scanning`. Heap entries are rank * 2**32 + place; stale ones are passed over."""
    following, before = np.arange(1, count + 1), np.arange(-1, count - 1)
    heap = np.empty(3 * count, np.uint64)
    size = 0
    for i in range(count - 1):
        size = _offer(heap, size, pairs, tokens[i], tokens[i + 1], i)
    while size:
        entry, size = _pop(heap, size)
        place = np.int64(entry & _LOW)
        right = following[place]
        if tokens[place] < 0 or right >= count:
            continue
        merge = _merge_of(pairs, tokens[place], tokens[right])
        if merge >> _HALF != entry >> _HALF:
            continue
        tokens[place], tokens[right] = np.int32(merge & _LOW), -1
        following[place] = following[right]
        if following[place] < count:
            before[following[place]] = place
            size = _offer(heap, size, pairs, tokens[place], tokens[following[place]], place)
        if before[place] >= 0:
            size = _offer(heap, size, pairs, tokens[before[place]], tokens[place], before[place])
    left = 0
    for i in range(count):
        if tokens[i] >= 0:
            tokens[left] = tokens[i]
            left += 1
    return left


@kernel
def _offer(heap, size, pairs, left, right, place):
    """Push a pair that merges; returns the heap's size."""
    merge = _merge_of(pairs, left, right)
    return size if merge == _NONE else _push(heap, size, (merge >> _HALF) << _HALF | np.uint64(place))


@kernel
def _packed(data, at, length):
    """A piece of at most CACHED_BYTES bytes as two words; the last byte of the second is its length."""
    first, second = np.uint64(0), np.uint64(length) << _TOP
    for i in range(min(length, 8)):
        first |= np.uint64(data[at + i]) << np.uint64(8 * i)
    for i in range(8, length):
        second |= np.uint64(data[at + i]) << np.uint64(8 * (i - 8))
    return first, second


@kernel
def _write_known(tokens, ids, total):
    """Append the tokens of a cache entry's word: two halves, NO_TOKEN where there is none."""
    one, other = tokens & _LOW, tokens >> _HALF
    if one != _NO_TOKEN:
        ids[total] = np.int32(one)
        total += 1
    if other != _NO_TOKEN:
        ids[total] = np.int32(other)
        total += 1
    return total


@kernel
def _known_word(ids, at, count):
    """Up to two tokens as a word of a cache entry."""
    one = np.uint64(ids[at]) if count > 0 else _NO_TOKEN
    other = np.uint64(ids[at + 1]) if count > 1 else _NO_TOKEN
    return other << _HALF | one


@kernel
def encode_column(data, offsets, classes, byte_ids, pairs, cache, ids, ends):
    """Encode every row of a text column.

    Args:
        classes: bits by code point, see `pieces`.
        byte_ids: [256] the token of each byte.
        pairs: the table of `fill_pairs`.
        cache: [slots, 4] uint64, zeros at first, kept from call to call: a piece's bytes and length (`_packed`) and its tokens, at
            most four. A piece has one slot and takes it from the one before; what is found never depends on the cache.
        ids: gets all tokens, one row behind the other; as many as there are bytes must fit.
        ends: [rows + 1] gets where each row's tokens end.
    """
    mask = np.uint64(cache.shape[0] - 1)
    merges = np.empty(SCANNED_BYTES, np.uint64)
    total = 0
    ends[0] = 0
    for row in range(offsets.size - 1):
        at, stop = offsets[row], offsets[row + 1]
        while at < stop:
            end = piece_end(data, at, stop, classes)
            length = end - at
            if length > CACHED_BYTES:
                total += _encode_piece(data, at, length, byte_ids, pairs, merges, ids, total)
                at = end
                continue
            first, second = _packed(data, at, length)
            slot = mix64(first ^ mix64(second)) & mask
            if cache[slot, 0] == first and cache[slot, 1] == second:
                total = _write_known(cache[slot, 2], ids, total)
                total = _write_known(cache[slot, 3], ids, total)
            else:
                count = _encode_piece(data, at, length, byte_ids, pairs, merges, ids, total)
                if count <= 4:
                    cache[slot, 0], cache[slot, 1] = first, second
                    cache[slot, 2], cache[slot, 3] = _known_word(ids, total, count), _known_word(ids, total + 2, count - 2)
                total += count
            at = end
        ends[row + 1] = total


@kernel
def _encode_piece(data, at, length, byte_ids, pairs, merges, ids, total):
    """Append one piece's tokens to `ids`; returns how many."""
    for i in range(length):
        ids[total + i] = byte_ids[data[at + i]]
    if length <= SCANNED_BYTES:
        return _merge_by_scanning(ids[total : total + length], length, pairs, merges)
    return _merge_by_heap(ids[total : total + length], length, pairs)
