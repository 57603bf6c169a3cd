"""`archive://`: what an archive holds, as files to read.

    archive://blobs/trajectories/17.json::s3://bucket/run/archive      a blob
    archive://tables/samples/00000-of-00002.parquet::/runs/3/archive   a shard of a table

After `::` stands where the archive lies (fsspec's way to put one filesystem on another). Without it the URI is one of the
archive that it was read from: `Archive.open`. Each filesystem pins the newest snapshot when it is first used.
"""

from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from fsspec import AbstractFileSystem

from infra.archive import PROTOCOL, manifest
from infra.archive.snapshot import Snapshot
from infra.storage.errors import PermanentStorageError
from infra.storage.streams import open_file

READ_ONLY = "archive:// is read-only; add rows and blobs in a transaction of infra.archive.archive.Archive"


class ArchiveFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Tables and blobs of one archive.

    Args:
        fo: where the archive lies. fsspec fills it in from what stands behind `::`.
    """

    protocol = PROTOCOL
    cachable = False  # a cached one would show an old snapshot for ever

    def __init__(self, fo: str | None = None, target_protocol: str | None = None, target_options: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self._target = f"{target_protocol}://{fo}" if fo and target_protocol not in (None, "file") and "://" not in fo else fo

    @cached_property
    def snapshot(self) -> Snapshot:
        """The one that this filesystem shows."""
        if not self._target:
            raise ValueError("archive:// does not say which archive; write archive://blobs/NAME::WHERE-IT-LIES, or use Archive.open")
        url = self._target.rstrip("/")
        return Snapshot(url, manifest.latest(url))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if path in self._files:
            return {"name": path, "type": "file", "size": self._files[path][1]}
        if not path or any(name.startswith(f"{path}/") for name in self._files) or path in ("blobs", "tables"):
            return {"name": path, "type": "directory", "size": 0}
        raise FileNotFoundError(f"archive://{path}: {self.snapshot.url} has nothing of this name in commit {self.snapshot.number}")

    def modified(self, path: str) -> datetime:
        """The same for ever, as the files are; DuckDB asks."""
        self.info(path)
        return datetime.fromtimestamp(0, UTC)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        if self.info(path)["type"] == "file":
            return [self.info(path)] if detail else [path]
        below = f"{path}/" if path else ""
        names = {f"{below}{name.removeprefix(below).partition('/')[0]}" for name in self._files if name.startswith(below)}
        if not path:
            names |= {"blobs", "tables"}
        return [self.info(name) for name in sorted(names)] if detail else sorted(names)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if mode != "rb":
            raise PermanentStorageError(READ_ONLY)
        path = self._strip_protocol(path)
        if path not in self._files:
            raise FileNotFoundError(f"archive://{path}: {self.snapshot.url} has no such blob or shard in commit {self.snapshot.number}")
        return open_file(self._files[path][0])

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        with self._open(path) as stream:
            size = self.info(path)["size"]
            begin, stop, _step = slice(start, end).indices(size)
            stream.seek(begin)
            return stream.read(max(0, stop - begin))  # type: ignore[no-any-return]

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        raise PermanentStorageError(READ_ONLY)

    def rm_file(self, path: str) -> None:
        raise PermanentStorageError(READ_ONLY)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        raise PermanentStorageError(READ_ONLY)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        raise PermanentStorageError(READ_ONLY)

    @cached_property
    def _files(self) -> dict[str, tuple[str, int]]:
        """Path -> (URL, bytes) of every file that can be opened."""
        found = {f"blobs/{name}": (self.snapshot.blob_url(name), size) for name, size in self.snapshot.blobs.items()}
        for table in self.snapshot.tables:
            shards = self.snapshot.shards(table)
            for index, shard in enumerate(shards):
                found[f"tables/{table}/{index:05d}-of-{len(shards):05d}.parquet"] = (f"{self.snapshot.url}/{shard.file}", shard.size)
        return found

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix(f"{PROTOCOL}://").partition("::")[0].strip("/")
