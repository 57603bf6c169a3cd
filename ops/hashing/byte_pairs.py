# mypy: allow-untyped-defs, allow-untyped-calls
"""Byte-level BPE (Sennrich et al. 2016) over whole text columns; compiled, without the GIL.

Merges are looked up in an open-addressing table of pairs, those of two bytes in a table of their own. Short pieces that came
before are copied from a cache of pairs of slots, whose entry is half a cache line: the piece's bytes and its tokens. Short
pieces are merged by scanning, long ones with a heap: a megabyte of letters costs n log n. Either way the pair of least rank
is merged first, of several the leftmost.
"""

import numpy as np

from ops.hashing.compiled import kernel
from ops.hashing.eight_bytes import first_bytes, load_eight
from ops.hashing.pieces import piece_end

SCANNED_BYTES = 48  # beyond it the heap is faster than scanning for the least rank again and again
CACHED_BYTES = 15  # two words with the length; longer pieces are one in a hundred
SPARE = 3  # tokens that may be written behind the last one
MOST_TOKENS = 1 << 21  # that fit an entry of the table of pairs
EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)  # of that table: no entry, for the top bit of every entry is 0
NO_MERGE = np.uint32(0xFFFFFFFF)  # a rank that loses to all
_SIDE, _RANK = np.uint64(21), np.uint64(MOST_TOKENS - 1)
_SPREAD, _OTHER_SPREAD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)  # odd, for hashes by multiplication
_ONE, _HALF, _LOW = np.uint64(1), np.uint64(32), np.uint64(0xFFFFFFFF)
_EVEN = ~np.uint64(1)
_TOP = np.uint64(56)


@kernel
def _slot_of(pairs, key):
    """Where a pair stands in the table, or would: then `EMPTY` is there."""
    mask = np.uint64(pairs.size - 1)
    slot = key * _SPREAD >> _HALF & mask
    while pairs[slot] >> _SIDE != key and pairs[slot] != EMPTY:
        slot = (slot + _ONE) & mask
    return slot


@kernel
def fill_pairs(lefts, rights, pairs):
    """Put every merge, in the order of their ranks, into the table (uint64, a power of two of them, `EMPTY` at first).

    An entry is the two tokens and the rank, 21 bits each: eight lie in a cache line, and all of a vocabulary of 32,768 in 512 KiB.
    """
    for rank in range(lefts.size):
        key = np.uint64(lefts[rank]) << _SIDE | np.uint64(rights[rank])
        slot = _slot_of(pairs, key)
        if pairs[slot] == EMPTY:
            pairs[slot] = key << _SIDE | np.uint64(rank)


@kernel
def rank_of(pairs, left, right):
    """The rank of a pair of tokens, `NO_MERGE` if they do not merge."""
    entry = pairs[_slot_of(pairs, np.uint64(left) << _SIDE | np.uint64(right))]
    return np.uint32(entry & _RANK) if entry != EMPTY else NO_MERGE


@kernel
def fill_byte_ranks(byte_ids, pairs, ranks):
    """Fill `ranks` [256, 256] (uint32) with the rank of every two bytes. Pieces begin as bytes, and frequent ones lie close here."""
    for left in range(256):
        for right in range(256):
            ranks[left, right] = rank_of(pairs, byte_ids[left], byte_ids[right])


@kernel
def _merge_by_scanning(tokens, count, merges, pairs, made):
    """Merge the first `count` tokens in place; returns how many are left. `merges`: the rank of each pair, overwritten."""
    while count > 1:
        best, place = NO_MERGE, 0
        for i in range(count - 1):
            if merges[i] < best:
                best, place = merges[i], i
        if best == NO_MERGE:
            break
        tokens[place] = made[best]
        count -= 1
        for i in range(place + 1, count):
            tokens[i] = tokens[i + 1]
            merges[i - 1] = merges[i]
        if place > 0:
            merges[place - 1] = rank_of(pairs, tokens[place - 1], tokens[place])
        if place < count - 1:
            merges[place] = rank_of(pairs, tokens[place], tokens[place + 1])
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
def _merge_by_heap(tokens, count, pairs, made):
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
        rank = rank_of(pairs, tokens[place], tokens[right])
        if np.uint64(rank) != entry >> _HALF:
            continue
        tokens[place], tokens[right] = made[rank], -1
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
    rank = rank_of(pairs, left, right)
    return size if rank == NO_MERGE else _push(heap, size, np.uint64(rank) << _HALF | np.uint64(place))


@kernel
def _packed(data, at, length):
    """A piece of at most CACHED_BYTES bytes as two words; the last byte of the second is its length."""
    tag = np.uint64(length) << _TOP
    if at + 16 <= data.size:
        whole = min(length, 8)
        return first_bytes(load_eight(data, at), whole), tag | first_bytes(load_eight(data, at + 8), length - whole)
    first, second = np.uint64(0), tag
    for i in range(min(length, 8)):
        first |= np.uint64(data[at + i]) << np.uint64(8 * i)
    for i in range(8, length):
        second |= np.uint64(data[at + i]) << np.uint64(8 * (i - 8))
    return first, second


@kernel
def _write_known(cache, place, ids, total):
    """Append the tokens of a cache entry; returns the new total. Four are written and those counted that are tokens: no branch to guess."""
    one, other = cache[place, 2], cache[place, 3]
    ids[total], ids[total + 1] = np.int32(one), np.int32(one >> _HALF)
    ids[total + 2], ids[total + 3] = np.int32(other), np.int32(other >> _HALF)
    return total + 1 + (ids[total + 1] >= 0) + (ids[total + 2] >= 0) + (ids[total + 3] >= 0)


@kernel
def _known_word(ids, at, count):
    """Up to two tokens as a word of a cache entry, -1 where there is none."""
    one = np.uint64(ids[at]) if count > 0 else _LOW
    other = np.uint64(ids[at + 1]) if count > 1 else _LOW
    return other << _HALF | one


@kernel
def _swap(cache, place):
    """Exchange an entry and the one behind it: the one that was used last stands first, and the other is the next to go."""
    for word in range(4):
        cache[place, word], cache[place + _ONE, word] = cache[place + _ONE, word], cache[place, word]


@kernel
def _bits(slots):
    count = 0
    while 1 << count < slots:
        count += 1
    return count


@kernel
def encode_column(data, offsets, classes, byte_ids, byte_ranks, pairs, made, cache, ids, ends):
    """Encode every row of a text column.

    Args:
        classes: bits by code point, see `pieces`.
        byte_ids: [256] the token of each byte.
        byte_ranks: the table of `fill_byte_ranks`.
        pairs: the table of `fill_pairs`.
        made: the token that each merge makes, by rank.
        cache: [slots, 4] uint64, zeros at first, kept from call to call: a piece's bytes and length (`_packed`) and its tokens, at
            most four. A piece has a place in one pair of slots; the one used last stands first in it, the other goes when a third
            comes. What is found never depends on the cache.
        ids: gets all tokens, one row behind the other; as many as there are bytes must fit, and `SPARE` more.
        ends: [rows + 1] gets where each row's tokens end.
    """
    shift = np.uint64(64 - _bits(cache.shape[0]))
    tokens, merges = np.empty(SCANNED_BYTES, np.int32), np.empty(SCANNED_BYTES, np.uint32)
    total = 0
    ends[0] = 0
    for row in range(offsets.size - 1):
        at, stop = offsets[row], offsets[row + 1]
        while at < stop:
            end = piece_end(data, at, stop, classes)
            length = end - at
            if length > CACHED_BYTES:
                total += _encode_piece(data, at, length, byte_ids, byte_ranks, pairs, made, tokens, merges, ids, total)
                at = end
                continue
            first, second = _packed(data, at, length)
            place = ((first * _SPREAD ^ second * _OTHER_SPREAD) >> shift) & _EVEN
            if cache[place, 0] != first or cache[place, 1] != second:
                _swap(cache, place)
            if cache[place, 0] != first or cache[place, 1] != second:
                count = _encode_piece(data, at, length, byte_ids, byte_ranks, pairs, made, tokens, merges, ids, total)
                if count <= 4:
                    cache[place, 0], cache[place, 1] = first, second
                    cache[place, 2], cache[place, 3] = _known_word(ids, total, count), _known_word(ids, total + 2, count - 2)
                total += count
            else:
                total = _write_known(cache, place, ids, total)
            at = end
        ends[row + 1] = total


@kernel
def _encode_piece(data, at, length, byte_ids, byte_ranks, pairs, made, tokens, merges, ids, total):
    """Append one piece's tokens to `ids`; returns how many. `tokens`, `merges`: scratch for `SCANNED_BYTES` of them."""
    if length > SCANNED_BYTES:
        for i in range(length):
            ids[total + i] = byte_ids[data[at + i]]
        return _merge_by_heap(ids[total : total + length], length, pairs, made)
    for i in range(length):
        tokens[i] = byte_ids[data[at + i]]
    for i in range(length - 1):
        merges[i] = byte_ranks[data[at + i], data[at + i + 1]]
    count = _merge_by_scanning(tokens, length, merges, pairs, made)
    for i in range(count):
        ids[total + i] = tokens[i]
    return count
