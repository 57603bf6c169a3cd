"""WARC payload digests."""

import base64
import hashlib

ALGORITHMS = {"sha1": "sha1", "sha-1": "sha1", "sha256": "sha256", "sha-256": "sha256", "md5": "md5"}


def matches(labelled: str, *candidates: bytes) -> bool | None:
    """Whether a field like `sha1:3EF4GH...` is the digest of any candidate; None when the field can't be read.

    Digest values come in base 32, and in hexadecimal from some writers.
    """
    algorithm, _, value = labelled.strip().partition(":")
    name = ALGORITHMS.get(algorithm.lower())
    if name is None or not value:
        return None
    digests = [hashlib.new(name, data, usedforsecurity=False).digest() for data in candidates]
    expected = value.strip().rstrip("=")
    if len(expected) == 2 * len(digests[0]):
        return any(digest.hex() == expected.lower() for digest in digests)
    if len(expected) != len(base64.b32encode(digests[0]).rstrip(b"=")):
        return None
    return any(base64.b32encode(digest).decode().rstrip("=") == expected.upper() for digest in digests)
