"""Damage for parsers: truncated, flipped, spliced, repeated bytes. A seed and a number give the same case for ever."""

import random
import re


def mutated(seeds: list[bytes], case: int) -> bytes:
    """One damaged copy of one of the seeds."""
    chance = random.Random(case)
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 3)):
        _damage(data, chance, seeds)
    return bytes(data)


def _damage(data: bytearray, chance: random.Random, seeds: list[bytes]) -> None:
    at = chance.randrange(len(data) + 1)
    match chance.choice(("truncate", "flip", "splice", "repeat", "remove", "number")):
        case "truncate":
            del data[at:]
        case "flip":
            for _ in range(chance.randint(1, 20)):
                if data:
                    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case "splice":
            other = chance.choice(seeds)
            start = chance.randrange(len(other))
            data[at : at + chance.randint(0, 200)] = other[start : start + chance.randint(1, 2_000)]
        case "repeat":
            part = data[at : at + chance.randint(1, 200)]
            data[at:at] = part * chance.randint(1, 50)
        case "remove":
            del data[at : at + chance.randint(1, 500)]
        case _:
            digits = [match.start() for match in re.finditer(rb"[0-9\xb2\xb3\xb9]", data)]  # superscripts too
            if digits:
                where = chance.choice(digits)
                data[where : where + 1] = chance.choice((b"0", b"-1", b"999999999", b"4294967295"))
