# mypy: allow-untyped-defs, allow-untyped-calls
"""What follows after each few words of a text, whom a third text sides with where two differ, what one has alone; compiled."""

import numpy as np

from ops.hashing.compiled import kernel
from ops.hashing.kernels import char_units, fold_text, mix64, window_hashes, word_units

_BACKWARD = np.uint64(0x452821E638D01377)  # tells the words before a place from those after it


@kernel
def continuations(data, folding, by_word, width):
    """Every run of `width` units of a text with the unit that follows it, and, as a context of its own, with the one before it.

    Returns:
        contexts: [entries] uint64, ascending. nexts: [entries] uint64, what stands beside each; ascending within a context.
    """
    codes = np.empty(data.size, np.uint32)
    units = np.empty(data.size, np.uint64)
    windows = np.empty(data.size, np.uint64)
    count = fold_text(data, 0, data.size, folding, codes)
    count = word_units(codes, count, units) if by_word else char_units(codes, count, units)
    runs = max(0, count - width)
    contexts, nexts = np.empty(2 * runs, np.uint64), np.empty(2 * runs, np.uint64)
    if runs:
        window_hashes(units, count, width, windows)
    for i in range(runs):
        contexts[i], nexts[i] = windows[i], units[i + width]
        contexts[runs + i], nexts[runs + i] = mix64(windows[i + 1] ^ _BACKWARD), units[i]
    order = np.argsort(nexts, kind="mergesort")
    order = order[np.argsort(contexts[order], kind="mergesort")]
    return contexts[order], nexts[order]


@kernel
def _follows(contexts, nexts, first, context, unit):
    """Whether `unit` follows the context whose entries begin at `first`."""
    while first < contexts.size and contexts[first] == context:
        if nexts[first] == unit:
            return True
        first += 1
    return False


@kernel
def sides_taken(contexts, nexts, other_contexts, other_nexts, third_contexts, third_nexts):
    """Where two texts go on differently beside the same words: at how many such places a third text has these words too, and
    at how many of them it goes on as one of the two.

    Every argument pair is a text's `continuations`.
    """
    known = agreeing = i = 0
    while i < contexts.size:
        end = i
        while end < contexts.size and contexts[end] == contexts[i]:
            end += 1
        other = np.searchsorted(other_contexts, contexts[i])
        if other < other_contexts.size and other_contexts[other] == contexts[i]:
            third = np.searchsorted(third_contexts, contexts[i])
            differs = False
            for j in range(i, end):
                differs |= not _follows(other_contexts, other_nexts, other, contexts[i], nexts[j])
            if differs and third < third_contexts.size and third_contexts[third] == contexts[i]:
                known += 1
                at = third
                while at < third_contexts.size and third_contexts[at] == contexts[i]:
                    if _follows(contexts, nexts, i, contexts[i], third_nexts[at]) or _follows(
                        other_contexts, other_nexts, other, contexts[i], third_nexts[at]
                    ):
                        agreeing += 1
                        break
                    at += 1
        i = end
    return known, agreeing


@kernel
def longest_own_run(data, folding, width, known):
    """Words in a row that no window of `width` words shared with another text covers: the longest passage a text has alone.

    Args:
        known: the other text's window hashes, ascending.
    """
    codes = np.empty(data.size, np.uint32)
    units = np.empty(data.size, np.uint64)
    windows = np.empty(data.size, np.uint64)
    count = word_units(codes, fold_text(data, 0, data.size, folding, codes), units)
    found = window_hashes(units, count, width, windows)
    longest = run = 0
    covered = -1
    for i in range(count):
        if i < found:
            at = np.searchsorted(known, windows[i])
            if at < known.size and known[at] == windows[i]:
                covered = i + width - 1
        run = 0 if i <= covered else run + 1
        longest = max(longest, run)
    return longest
