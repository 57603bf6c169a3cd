"""`users://`: everybody writes to a layer of his own and reads what the team has finished.

    {prefix}/users/{me}/{path}       1. mine: all that I write, make and remove
    {prefix}/users/{other}/{path}    2. a teammate's, below a root that is published
    {prefix}/{path}                  3. shared

A read takes the first layer that has the path. A *root* is the folder that holds an artifact's manifest, at most three
segments below `users://` (as `{asset}/{partition}/{recipe}`); the manifest is written last and once, so what a
teammate is still building, or failed to build, is not seen. Once a teammate was chosen for a root, all reads below it
stay with him as long as the filesystem lives. Two teammates with one root are an error: nobody is picked by chance.
Layers are never merged: a listing shows one.

`$SEAWAY_USERS_PREFIX` is the team's prefix, a local path, `memory://` or `s3://`.
"""

import getpass
import logging
import os
import re
import threading
from collections.abc import Iterator
from typing import Any

from fsspec import AbstractFileSystem

from infra.storage.errors import PermanentStorageError, retried
from infra.storage.filesystem import USERS_PROTOCOL, open_filesystem

PREFIX_VARIABLE = "SEAWAY_USERS_PREFIX"
USER_VARIABLE = "SEAWAY_USER"
JOB_USER_VARIABLE = "SEAWAY_JOB_USER"  # on whose behalf a job runs: its process belongs to the cluster's user
MANIFEST = ".artifact.json"
ROOT_SEGMENTS = 3
USERS_FOLDER = "users"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")

_log = logging.getLogger(__name__)


class AmbiguousOwnerError(PermanentStorageError):
    """Several teammates published the same root."""


def resolve(url: str) -> str:
    """Where a `users://` path that exists lies, as a concrete URL; other URLs as they are.

    Raises:
        FileNotFoundError: no layer has it.
        AmbiguousOwnerError: several teammates have it.
        PermanentStorageError: nobody knows who I am, or there is no prefix.
    """
    if not url.startswith(f"{USERS_PROTOCOL}://"):
        return url
    filesystem, path = _opened(url)
    return filesystem.resolve(path)


def read_url(url: str) -> str:
    """As `resolve`; a path that no layer has is looked for in mine, where it isn't."""
    if not url.startswith(f"{USERS_PROTOCOL}://"):
        return url
    filesystem, path = _opened(url)
    return filesystem.find_layer(path) or filesystem.write_url(path)


def write_url(url: str) -> str:
    """Where a `users://` path is written: in my layer. Other URLs as they are."""
    if not url.startswith(f"{USERS_PROTOCOL}://"):
        return url
    filesystem, path = _opened(url)
    return filesystem.write_url(path)


def join(root: str, *parts: str) -> str:
    """A URL below a root; below a bare `users://` it is `users://part`, never `users:///part`."""
    below = "/".join(part.strip("/") for part in parts)
    return f"{root}{below}" if root.endswith("://") else f"{root.rstrip('/')}/{below}"


class UsersFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The layers of one user over one prefix.

    Args:
        prefix: the team's; `$SEAWAY_USERS_PREFIX` if None.
        user: who I am; else `$SEAWAY_USER`, else `$SEAWAY_JOB_USER`, else the operating system's user.

    Opening one never fails; its first use does if prefix or user can't be told.
    """

    protocol = USERS_PROTOCOL

    def __init__(self, prefix: str | None = None, user: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._prefix, self._user = prefix, user
        self._owners: dict[str, str] = {}  # root -> the teammate whose it is
        self._lock = threading.Lock()

    @property
    def prefix(self) -> str:
        found = self._prefix or os.environ.get(PREFIX_VARIABLE)
        if not found:
            raise PermanentStorageError(f"users:// has no prefix; set {PREFIX_VARIABLE} to the team's root, such as s3://bucket/team")
        return found.rstrip("/")

    @property
    def user(self) -> str:
        found = self._user or os.environ.get(USER_VARIABLE) or os.environ.get(JOB_USER_VARIABLE) or _os_user()
        if not found or not NAME.fullmatch(found):
            raise PermanentStorageError(
                f"users:// can't tell who you are (found {found!r}); set {USER_VARIABLE} to a name that can be a folder"
            )
        return found

    def resolve(self, path: str) -> str:
        """The concrete URL of a path that exists; raises FileNotFoundError."""
        found = self.find_layer(path)
        if found is None:
            raise FileNotFoundError(
                f"users://{_valid(path)}: {self.user} has none, no teammate published one, and none is shared below {self.prefix}"
            )
        return found

    def write_url(self, path: str) -> str:
        """The concrete URL of a path in my layer."""
        return f"{self._layer(self.user)}/{_valid(path)}"

    def find_layer(self, path: str) -> str | None:
        """The concrete URL of a path in the first layer that has it, or None."""
        path = _valid(path)
        with self._lock:
            chosen = next((owner for root in _roots(path) if (owner := self._owners.get(root))), None)
            if chosen is not None:
                return f"{self._layer(chosen)}/{path}"
            mine = self.write_url(path)
            if _exists(mine) or self._published_root(self.user, path):
                return mine
            if (owner := self._choose(path)) is not None:
                return f"{self._layer(owner)}/{path}"
        shared = f"{self.prefix}/{path}"
        if not _exists(shared):
            return None
        _log.info("users://%s is the shared one at %s", path, shared)
        return shared

    def _choose(self, path: str) -> str | None:
        """The one teammate who published a root above a path; remembered."""
        owners = {user: root for user in self._teammates() if (root := self._published_root(user, path))}
        if len(owners) > 1:
            found = ", ".join(f"{self._layer(user)}/{root}" for user, root in sorted(owners.items()))
            raise AmbiguousOwnerError(f"users://{path} was published by {len(owners)} teammates: {found}; read one of them by its own URL")
        for user, root in owners.items():
            self._owners[root] = user
            _log.info("users://%s is the one that %s published at %s/%s", root, user, self._layer(user), root)
            return user
        return None

    def _teammates(self) -> list[str]:
        url = f"{self.prefix}/{USERS_FOLDER}"
        filesystem, path = open_filesystem(url)
        try:
            found = retried("list", url, lambda: filesystem.ls(path, detail=False, refresh=True))
        except FileNotFoundError:
            return []
        names = {name.rstrip("/").rpartition("/")[2] for name in found}
        return sorted(name for name in names - {self.user} if NAME.fullmatch(name))

    def _published_root(self, user: str, path: str) -> str | None:
        return next((root for root in _roots(path) if _exists(f"{self._layer(user)}/{root}/{MANIFEST}")), None)

    def _layer(self, user: str) -> str:
        return f"{self.prefix}/{USERS_FOLDER}/{user}"

    # fsspec's interface: reads where the path is found, writes in my layer

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        filesystem, concrete = open_filesystem(self.resolve(path) if mode == "rb" else self.write_url(path))
        return filesystem.open(concrete, mode, **{key: value for key, value in options.items() if key == "block_size" and value})

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        filesystem, concrete = open_filesystem(self.resolve(path))
        return {**filesystem.info(concrete), "name": _valid(path)}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        found = dict(self._renamed(path, "ls"))
        return list(found.values()) if detail else sorted(found)

    def find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **_: Any) -> Any:
        found = dict(self._renamed(path, "find", maxdepth=maxdepth, withdirs=withdirs))
        return found if detail else sorted(found)

    def _renamed(self, path: str, listing: str, **options: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        filesystem, concrete = open_filesystem(self.resolve(path))
        found = getattr(filesystem, listing)(concrete, detail=True, **options)
        for entry in found.values() if isinstance(found, dict) else found:
            name = f"{_valid(path)}{entry['name'].rstrip('/').removeprefix(concrete.rstrip('/'))}"
            yield name, {**entry, "name": name}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        filesystem, concrete = open_filesystem(self.resolve(path))
        return filesystem.cat_file(concrete, start=start, end=end)  # type: ignore[no-any-return]

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        filesystem, concrete = open_filesystem(self.write_url(path))
        filesystem.makedirs(concrete.rpartition("/")[0], exist_ok=True)
        filesystem.pipe_file(concrete, value)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        filesystem, concrete = open_filesystem(self.write_url(path))
        filesystem.mkdir(concrete, create_parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        filesystem, concrete = open_filesystem(self.write_url(path))
        filesystem.makedirs(concrete, exist_ok=exist_ok)

    def rm_file(self, path: str) -> None:
        filesystem, concrete = open_filesystem(self.write_url(path))
        filesystem.rm_file(concrete)

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        for one in [path] if isinstance(path, str) else path:
            filesystem, concrete = open_filesystem(self.write_url(one))
            filesystem.rm(concrete, recursive=recursive, maxdepth=maxdepth)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix(f"{USERS_PROTOCOL}://").strip("/")


def _opened(url: str) -> tuple[UsersFileSystem, str]:
    filesystem, path = open_filesystem(url)
    assert isinstance(filesystem, UsersFileSystem)
    return filesystem, path


def _roots(path: str) -> Iterator[str]:
    """Where an artifact that holds `path` may have its manifest, outermost first."""
    segments = path.split("/")
    for count in range(1, min(ROOT_SEGMENTS, len(segments)) + 1):
        yield "/".join(segments[:count])


def _exists(url: str) -> bool:
    filesystem, path = open_filesystem(url)
    return retried("look for", url, lambda: bool(filesystem.exists(path)))


def _valid(path: str) -> str:
    path = UsersFileSystem._strip_protocol(path)  # fsspec strips it for some of its methods only
    if not path or ".." in path.split("/"):
        raise ValueError(f"users://{path} names nothing; give a path below it, without '..'")
    return path


def _os_user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return None
