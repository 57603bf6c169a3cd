"""Identifiers and encodings: names and codes that must be copied or decoded byte by byte. Read by `uuid`, `base64` and `urllib`."""

import base64
import uuid
from collections.abc import Iterator
from random import Random
from urllib.parse import quote, unquote

from ops.evaluation.perplexity.slices import TextDocument, supervised

WORDS = ("amber", "Øresund", "köln", "delta", "東京", "mañana", "quartz", "raven", "tundra", "zürich")


def copied_uuids(random: Random, count: int) -> Iterator[TextDocument]:
    """A table of names and UUIDs, then one of its rows again; the target is that UUID.

    Raises:
        ValueError: generated text isn't a UUID of version 4.
    """
    for number in range(count):
        rows = [(f"node-{random.randrange(16**4):04x}", str(uuid.UUID(int=random.getrandbits(128), version=4))) for _ in range(8)]
        for _, value in rows:
            if uuid.UUID(value).version != 4:
                raise ValueError(f"{value} is no UUID of version 4")
        name, value = random.choice(rows)
        table = "".join(f"{row_name} = {row_value}\n" for row_name, row_value in rows)
        yield supervised(f"uuid-{number:03d}", f"{table}\n# again\n{name} = ", f"{value}\n")


def encoded_words(random: Random, count: int) -> Iterator[TextDocument]:
    """Words beside their base64 and percent-encoded forms; the target is the last word's form.

    Raises:
        ValueError: a form doesn't decode to its word.
    """
    for number in range(count):
        words = [f"{random.choice(WORDS)}-{random.randrange(100)}" for _ in range(7)]
        lines = [(word, base64.b64encode(word.encode()).decode(), quote(word, safe="")) for word in words]
        for word, code, percent in lines:
            if base64.b64decode(code, validate=True).decode() != word or unquote(percent, errors="strict") != word:
                raise ValueError(f"{code} or {percent} does not decode to {word}")
        shown = "".join(f"{word}\tbase64:{code}\turl:{percent}\n" for word, code, percent in lines[:-1])
        word, code, percent = lines[-1]
        yield supervised(f"code-{number:03d}", f"{shown}{word}\tbase64:", f"{code}\turl:{percent}\n")
