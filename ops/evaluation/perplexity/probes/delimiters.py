"""Delimiters: what closes what was opened. The target closes a JSON value; `json` reads the whole."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from ops.evaluation.perplexity.slices import TextDocument, supervised

NAMES = ("items", "left", "right", "meta", "rows", "next", "points", "range")


def json_closings(random: Random, count: int) -> Iterator[TextDocument]:
    """Documents that end inside a nested value; the target is what is left of it.

    Raises:
        ValueError: generated text isn't JSON, or a part of it already is.
    """
    for number in range(count):
        examples = "".join(f"{json.dumps(_value(random, 3))}\n" for _ in range(3))
        whole = json.dumps({"id": number, "value": _value(random, 5)})
        cut = random.randrange(len(whole) * 2 // 3, len(whole) - 1)
        before, target = whole[:cut], whole[cut:]
        _require_json(before, target)
        yield supervised(f"json-{number:03d}", examples + before, target + "\n")


def _require_json(before: str, target: str) -> None:
    json.loads(before + target)
    try:
        json.loads(before)
    except ValueError:
        return
    raise ValueError(f"{before!r} is a whole JSON value; the target would close nothing")


def _value(random: Random, depth: int) -> Any:
    if depth == 0:
        return random.choice([random.randrange(1000), random.random() < 0.5, None, random.choice(NAMES), round(random.uniform(-9, 9), 3)])
    if random.random() < 0.5:
        return [_value(random, depth - 1) for _ in range(random.randrange(1, 4))]
    return {name: _value(random, depth - 1) for name in random.sample(NAMES, random.randrange(1, 4))}
