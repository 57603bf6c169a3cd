"""Patches: a file and the unified diff to its next version. Written by `difflib`, and applied before it is believed."""

import difflib
import re
from collections.abc import Iterator, Sequence
from random import Random

from ops.evaluation.perplexity.slices import TextDocument, supervised

HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")
LINES = (
    "def area(width, height):",
    "    return width * height",
    "total = 0",
    "for row in rows:",
    "    total += row.amount",
    "if total > limit:",
    "    raise ValueError(total)",
    "print(total)",
    "rows = load(path)",
    "limit = 100",
)


class BadPatchError(ValueError):
    """A diff that does not apply to the file it is for."""


def unified_diffs(random: Random, count: int) -> Iterator[TextDocument]:
    """A file, its changed version and the diff between them; the target is the diff's last hunk.

    Raises:
        BadPatchError: the diff doesn't turn the one into the other.
    """
    for number in range(count):
        before = [f"{random.choice(LINES)}\n" for _ in range(24)]
        after = _edited(random, before)
        diff = list(difflib.unified_diff(before, after, "a/module.py", "b/module.py", n=2))
        if apply(before, diff) != after:
            raise BadPatchError("the diff does not give the changed file")
        last = max(index for index, line in enumerate(diff) if line.startswith("@@"))
        shown = "".join([*before, "\n# changed to\n", *after, "\n# as a diff\n", *diff[:last]])
        yield supervised(f"diff-{number:03d}", shown, "".join(diff[last:]))


def apply(before: Sequence[str], diff: Sequence[str]) -> list[str]:
    """The file that a unified diff makes of another; strict, as `patch` without fuzz.

    Raises:
        BadPatchError: a hunk's header or one of its lines doesn't fit the file.
    """
    after: list[str] = []
    position, lines = 0, iter(diff[2:])
    for header in lines:
        found = HUNK.fullmatch(header)
        if found is None:
            raise BadPatchError(f"{header!r} is no header of a hunk")
        start, old, _, new = (1 if part is None else int(part) for part in found.groups())
        first = start - 1 if old else start
        after += before[position:first]
        position, kept, made = first, 0, 0
        while kept < old or made < new:
            line = next(lines, "")
            kind, text = line[:1], line[1:]
            if kind not in (" ", "-", "+"):
                raise BadPatchError(f"hunk {header!r} ends before its {old} and {new} lines")
            if kind != "+":
                if position >= len(before) or before[position] != text:
                    raise BadPatchError(f"hunk {header!r}: line {position + 1} of the file is not {text!r}")
                position, kept = position + 1, kept + 1
            if kind != "-":
                after.append(text)
                made += 1
    return after + list(before[position:])


def _edited(random: Random, lines: Sequence[str]) -> list[str]:
    """Three edits, far enough apart to be hunks of their own."""
    after = list(lines)
    for place in (19, 11, 3):
        match random.randrange(3):
            case 0:
                after[place] = f"{after[place].rstrip()}  # checked {random.randrange(1000)}\n"
            case 1:
                del after[place]
            case _:
                after.insert(place, f"assert step != {random.randrange(1000)}\n")
    return after
