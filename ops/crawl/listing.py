"""Which files a source has: a sorted listing with a mark per file, and the fingerprint over it."""

import hashlib
import json
import os
import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ops.crawl.config import FilesSource, IndexSource, JsonlSource, WarcSource

RootedSource = FilesSource | WarcSource | IndexSource | JsonlSource
UNREAD = "unread"  # the mark of a file that could not be opened


class SourceError(ValueError):
    """A source can't be read: says which one, where it was looked for, and what to change."""


@dataclass(frozen=True)
class Entry:
    """One file: `name` relative to the root with `/`, size in bytes, where to open it, and a store's own mark of its content."""

    name: str
    size: int
    url: str
    etag: str | None = None


def resolve_root(root: str) -> str:
    """Replace a leading `${stdlib}`, `${site-packages}` or `${repository}` by where it is on this machine.

    Raises:
        SourceError: the variable is unknown.
    """
    match = re.match(r"\$\{([^}]*)\}", root)
    if match is None:
        return root.removeprefix("file://")
    places = {
        "stdlib": sysconfig.get_path("stdlib"),
        "site-packages": sysconfig.get_path("purelib"),
        "repository": str(Path(__file__).resolve().parents[2]),
    }
    if match[1] not in places:
        raise SourceError(f"root {root!r}: {match[0]} is unknown; choose one of {', '.join(f'${{{name}}}' for name in places)}")
    return os.path.normpath(places[match[1]] + root[match.end() :])


def list_entries(source: RootedSource) -> list[Entry]:
    """The source's files, sorted by name. Hidden files and folders are never data.

    Raises:
        SourceError: the root is missing, or nothing below it matches.
    """
    root = resolve_root(source.root)
    found = _list_remote(root) if "://" in root else _list_local(root)
    wanted = is_included(source)
    entries = sorted((entry for entry in found if wanted(entry.name)), key=lambda entry: entry.name)
    if not entries:
        raise SourceError(
            f"{source.kind} source: nothing under {root} matches {', '.join(source.include)}; "
            "an empty source would make every later stage succeed having done nothing, so put files there or drop the source"
        )
    return entries


def is_included(source: RootedSource) -> Callable[[str], bool]:
    """Whether a name below the root is one of the source's files."""
    include, exclude = _matcher(source.include), _matcher(source.exclude)
    return lambda name: include.fullmatch(name) is not None and exclude.fullmatch(name) is None


def open_entry(entry: Entry) -> IO[bytes]:
    """Open a file of the source.

    Raises:
        SourceError: it can't be read.
    """
    try:
        if "://" not in entry.url:
            return open(entry.url, "rb")
        import fsspec  # loads plug-ins; only remote roots need it

        filesystem, path = fsspec.url_to_fs(entry.url)
        return filesystem.open(path, "rb")  # type: ignore[no-any-return]
    except OSError as error:
        raise SourceError(f"{entry.url} can't be read ({error.strerror or type(error).__name__}); repair it or exclude it") from error


def fingerprint(marks: Iterable[tuple[str, int, str]]) -> str:
    """16 hex over sorted (name, size, mark) rows."""
    return hashlib.sha256(json.dumps(sorted(marks), separators=(",", ":")).encode()).hexdigest()[:16]


def content_mark(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _list_local(root: str) -> Iterator[Entry]:
    if not os.path.isdir(root):
        kind = "is a file" if os.path.exists(root) else "does not exist"
        raise SourceError(f"source root {root} {kind}; point the source's `root` in the profile at a folder that holds its files")
    for folder, folders, files in os.walk(root, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        for file in files:
            if file.startswith("."):
                continue
            path = os.path.join(folder, file)
            try:
                size = os.stat(path).st_size
            except OSError:
                size = -1  # a dangling link: a record that can't be read, not a reason to stop
            yield Entry(os.path.relpath(path, root).replace(os.sep, "/"), size, path)


def _refuse(error: OSError) -> None:
    raise SourceError(f"folder {error.filename} can't be listed ({error.strerror}); give the reader access or exclude it") from error


def _list_remote(root: str) -> Iterator[Entry]:
    import fsspec  # loads plug-ins; only remote roots need it

    filesystem, prefix = fsspec.url_to_fs(root)
    filesystem.invalidate_cache()
    if not filesystem.exists(prefix):
        raise SourceError(f"source root {root} does not exist; point the source's `root` in the profile at a prefix that holds its files")
    for path, info in filesystem.find(prefix, detail=True).items():
        name = path.removeprefix(prefix.rstrip("/") + "/")
        if info["type"] == "file" and not any(part.startswith(".") for part in name.split("/")):
            etag = info.get("ETag") or info.get("etag") or info.get("checksum") or info.get("created")
            yield Entry(name, info["size"], filesystem.unstrip_protocol(path), str(etag))


def _matcher(globs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(_glob_to_regex(glob) for glob in globs) or r"(?!)")


def _glob_to_regex(glob: str) -> str:
    """`**/` any folders, `*` and `?` within one name."""
    parts = {"**/": r"(?:[^/]+/)*", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    return "".join(parts.get(part, re.escape(part)) for part in re.split(r"(\*\*/|\*\*|\*|\?)", glob))
