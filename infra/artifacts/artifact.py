"""A published artifact, as a program reads it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from fsspec.implementations.local import LocalFileSystem

from infra.artifacts.manifest import MANIFEST_NAME, Manifest
from infra.caches.local_copy import local_copy
from infra.storage.filesystem import open_filesystem
from infra.storage.filesystem import uncached as uncached  # part of this module's interface
from infra.storage.objects import read_or_none
from infra.storage.streams import open_file
from infra.storage.users import read_url


@dataclass(frozen=True)
class Artifact:
    """An immutable, complete set of files at `url` (the recipe's directory, where the manifest lies)."""

    url: str
    manifest: Manifest

    @classmethod
    def open_at(cls, url: str) -> "Artifact":
        """Read the manifest under `url`.

        Raises:
            FileNotFoundError: nothing is published there.
        """
        stored = read_or_none(f"{url}/{MANIFEST_NAME}")
        if stored is None:
            raise FileNotFoundError(f"nothing is published at {url}")
        return cls(url, Manifest.model_validate_json(stored))

    @property
    def digest(self) -> str:
        return self.manifest.digest

    @property
    def stats(self) -> dict[str, Any]:
        return self.manifest.stats

    @cached_property
    def names(self) -> tuple[str, ...]:
        """File names, sorted. The manifest decides; storage is never listed."""
        return tuple(sorted(entry.name for entry in self.manifest.files))

    def url_of(self, name: str) -> str:
        """Where a file lies.

        Raises:
            FileNotFoundError: the manifest has no such file.
        """
        if name not in self.names:
            raise FileNotFoundError(f"{self.url} has no file {name!r}; it has {', '.join(self.names[:8])}")
        return f"{self.url}/{self.manifest.directory}/{name}"

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading, seekable."""
        return open_file(self.url_of(name))

    def read_json(self, name: str) -> Any:
        with self.open(name) as stream:
            return json.load(stream)

    def local_path(self, name: str) -> Path:
        """A path that can be memory-mapped: the file itself, or a verified local copy (`$SEAWAY_CACHE`) of one in an object store."""
        url = self.url_of(name)
        filesystem, path = open_filesystem(read_url(url))
        if isinstance(filesystem, LocalFileSystem):
            return Path(path)
        (entry,) = (entry for entry in self.manifest.files if entry.name == name)
        return local_copy(url, entry.size, entry.sha256)


Artifacts = Mapping[str, Artifact]
"""One artifact per upstream partition, sorted by partition key. Where an order decides (who survives), it is this one."""
