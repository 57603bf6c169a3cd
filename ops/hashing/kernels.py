"""Text to hashes, compiled: code points, words, windows, MinHash. `definition` says what each must give.

All arrays are one-dimensional unless said otherwise; texts are UTF-8 bytes `data[start:stop]`. Hashes are
uint64 and wrap. Literals are typed, because Numba turns uint64 with a plain integer into float64.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
import numpy as np

from ops.hashing.code_points import DROP_CODE, SPACE_CODE
from ops.hashing.compiled import kernel
from ops.hashing.definition import BASE, FNV_OFFSET, FNV_PRIME, MIX_1, MIX_2

_U27, _U30, _U31, _U32, _ONE = (np.uint64(value) for value in (27, 30, 31, 32, 1))
_MIX_1, _MIX_2 = np.uint64(MIX_1), np.uint64(MIX_2)
_FNV_OFFSET, _FNV_PRIME = np.uint64(FNV_OFFSET), np.uint64(FNV_PRIME)
_BASE = np.uint64(BASE)
_SPACE, _DROP, _REPLACEMENT = np.uint32(SPACE_CODE), np.uint32(DROP_CODE), np.uint32(0xFFFD)
_MAX32 = np.uint32(0xFFFFFFFF)

BLOCK = 512  # hashes per sweep over the permutations: 2 KiB, so they stay in the first-level cache
SEEN_MIN, SEEN_MAX = 256, 65_536  # slots of the recently-seen table; 512 KiB still fits the second-level cache


@kernel
def mix64(value):
    value = (value ^ (value >> _U30)) * _MIX_1
    value = (value ^ (value >> _U27)) * _MIX_2
    return value ^ (value >> _U31)


@kernel
def next_code_point(data, at, stop):
    """The code point at `at` and where the next begins; U+FFFD for a byte that begins none. Never reads past `stop`."""
    first = np.uint32(data[at])
    if first < 0x80:
        return first, at + 1
    if first < 0xC2 or first > 0xF4:
        return _REPLACEMENT, at + 1
    length = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if at + length > stop:
        return _REPLACEMENT, at + 1
    code = first & np.uint32(0x7F >> length)
    for i in range(1, length):
        code = (code << np.uint32(6)) | (np.uint32(data[at + i]) & np.uint32(0x3F))
    return code, at + length


@kernel
def fold_text(data, start, stop, folding, out):
    """Write the folded code points into `out` (uint32; its size is the cut) and return how many there are."""
    count = 0
    spaced = False
    at = start
    while at < stop:
        code, at = next_code_point(data, at, stop)
        if code < folding.size:
            code = folding[code]
        if code == _DROP:
            continue
        if code == _SPACE:
            spaced = count > 0
            continue
        if count + spaced >= out.size:
            break
        if spaced:
            out[count] = _SPACE
            count += 1
            spaced = False
        out[count] = code
        count += 1
    return count


@kernel
def char_units(codes, count, out):
    """Hash each of the first `count` code points into `out`; returns how many units there are."""
    for i in range(count):
        out[i] = mix64(np.uint64(codes[i]))
    return count


@kernel
def word_units(codes, count, out):
    """Hash each space-separated word of folded code points into `out`; returns how many words there are."""
    words = 0
    value = _FNV_OFFSET
    for i in range(count):
        if codes[i] == _SPACE:
            out[words] = mix64(value)
            words += 1
            value = _FNV_OFFSET
        else:
            value = (value ^ np.uint64(codes[i])) * _FNV_PRIME
    if count:
        out[words] = mix64(value)
        words += 1
    return words


@kernel
def folded_words(data, start, stop, folding, max_chars, out):
    """What `word_units` gives of `fold_text`, in one pass; a third faster."""
    words = chars = 0
    value = _FNV_OFFSET
    spaced = False
    at = start
    while at < stop:
        code, at = next_code_point(data, at, stop)
        if code < folding.size:
            code = folding[code]
        if code == _DROP:
            continue
        if code == _SPACE:
            spaced = chars > 0
            continue
        if chars + spaced >= max_chars:
            break
        if spaced:
            out[words] = mix64(value)
            words += 1
            chars += 1
            value = _FNV_OFFSET
            spaced = False
        value = (value ^ np.uint64(code)) * _FNV_PRIME
        chars += 1
        place, end = np.uint64(at), np.uint64(min(stop, at + max_chars - chars))  # an index that can't be negative is a sixth faster
        while place < end:  # the rest of an ASCII word asks nothing of the above
            byte = data[place]
            if byte >= 0x80:
                break
            code = folding[byte]
            if code in (_SPACE, _DROP):
                break
            value = (value ^ np.uint64(code)) * _FNV_PRIME
            place += _ONE
        chars += np.int64(place) - at
        at = np.int64(place)
    if chars:
        out[words] = mix64(value)
        words += 1
    return words


@kernel
def window_hashes(units, count, width, out):
    """Hash all windows of `width` of the first `count` units into `out`; one window when there are fewer units."""
    if count == 0:
        return 0
    width = min(width, count)
    top = _ONE
    value = np.uint64(0)
    for i in range(width):
        value = value * _BASE + units[i]
        if i:
            top *= _BASE
    length = np.uint64(width)
    out[0] = mix64(value + length)
    for i in range(width, count):
        value = (value - units[i - width] * top) * _BASE + units[i]
        out[i - width + 1] = mix64(value + length)
    return count - width + 1


@kernel
def _lower_minima(block, count, multipliers, addends, minima):
    for p in range(minima.size):
        a, b, least = multipliers[p], addends[p], minima[p]
        for i in range(count):
            least = min(least, np.uint32(np.uint32(a * block[i]) + b))
        minima[p] = least


@kernel
def _clear(seen, slots):
    """Fill each slot with a value whose low bits name another slot, so that no hash can be found there."""
    for slot in range(slots):
        seen[slot] = ~np.uint64(slot)


@kernel
def minima_of(hashes, count, multipliers, addends, seen, block, minima):
    """The least value of every permutation over the upper halves of the first `count` hashes.

    A minimum does not change when a shingle comes twice, so those still in the small table `seen` are passed over.
    """
    slots = SEEN_MIN
    while slots < count and slots < seen.size:
        slots *= 2
    _clear(seen, slots)
    minima[:] = _MAX32
    mask = np.uint64(slots - 1)
    filled = 0
    for i in range(count):
        value = hashes[i]
        slot = value & mask
        if seen[slot] == value:
            continue
        seen[slot] = value
        block[filled] = np.uint32(value >> _U32)
        filled += 1
        if filled == block.size:
            _lower_minima(block, filled, multipliers, addends, minima)
            filled = 0
    _lower_minima(block, filled, multipliers, addends, minima)


@kernel
def band_buckets(minima, out):
    """Hash each band of minima (equal runs, len(minima) / len(out) each) into one bucket."""
    rows = minima.size // out.size
    for band in range(out.size):
        value = mix64(np.uint64(band + 1))
        for i in range(band * rows, (band + 1) * rows):
            value = mix64(value ^ np.uint64(minima[i]))
        out[band] = value


@kernel
def minhash_rows(data, offsets, folding, by_word, width, max_chars, multipliers, addends, out):
    """LSH buckets of every row of a text column.

    Args:
        by_word: shingles of words if true, else of characters.
        out: [rows, bands] uint64, filled here.

    Returns:
        [rows] bool: whether anything was left after cleaning; where not, the row of `out` means nothing.
    """
    rows = offsets.size - 1
    longest = 0
    for row in range(rows):
        longest = max(longest, offsets[row + 1] - offsets[row])
    codes = np.empty(min(max_chars, longest), np.uint32)
    units = np.empty(codes.size, np.uint64)
    hashes = np.empty(codes.size, np.uint64)
    seen = np.empty(SEEN_MAX, np.uint64)
    block = np.empty(BLOCK, np.uint32)
    minima = np.empty(multipliers.size, np.uint32)
    signed = np.zeros(rows, np.bool_)
    for row in range(rows):
        if by_word:
            count = folded_words(data, offsets[row], offsets[row + 1], folding, max_chars, units)
        else:
            count = char_units(codes, fold_text(data, offsets[row], offsets[row + 1], folding, codes), units)
        count = window_hashes(units, count, width, hashes)
        if count:
            minima_of(hashes, count, multipliers, addends, seen, block, minima)
            band_buckets(minima, out[row])
            signed[row] = True
    return signed


@kernel
def folded_windows(data, offsets, row, folding, by_word, width, max_chars):
    """The window hashes of one row, sorted, with repeats; and how many units and folded characters it has."""
    codes = np.empty(min(max_chars, offsets[row + 1] - offsets[row]), np.uint32)
    units = np.empty(codes.size, np.uint64)
    chars = fold_text(data, offsets[row], offsets[row + 1], folding, codes)
    count = word_units(codes, chars, units) if by_word else char_units(codes, chars, units)
    hashes = np.empty(count, np.uint64)
    found = window_hashes(units, count, width, hashes)
    return np.sort(hashes[:found]), count, chars


@kernel
def shared_count(left, right):
    """How many elements two sorted arrays share, repeats counted."""
    i = j = shared = 0
    while i < left.size and j < right.size:
        if left[i] < right[j]:
            i += 1
        elif left[i] > right[j]:
            j += 1
        else:
            shared += 1
            i += 1
            j += 1
    return shared
