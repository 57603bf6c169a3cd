"""Conditional create on fsspec's in-memory filesystem, for tests and simulations."""

import threading

from fsspec import AbstractFileSystem

_one_creator_at_a_time = threading.Lock()


def create(filesystem: AbstractFileSystem, path: str, data: bytes) -> bool:
    """Create an object with `data` unless one is there."""
    with _one_creator_at_a_time:
        if filesystem.isfile(path):
            return False
        filesystem.pipe_file(path, data)
        return True
