"""Collection: what nobody needs any more, removed in an order that leaves no reader and no writer with less than it counts on.

Nobody needs a shard that was compacted away longer ago than the oldest snapshot in use, nor what a killed writer left.
Whether a writer is dead can't be known; so its transaction is *fenced* in the manifest first, and its files go after that:
should it wake up, its commit is refused. Age is measured between objects, by storage's own clock.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from infra.archive.blobs import BLOBS
from infra.archive.chain import Chain
from infra.archive.manifest import MANIFEST_FILE, TOMBSTONE_BYTES, Manifest, bury, read
from infra.archive.snapshot import Snapshot
from infra.archive.transaction import COMMIT_PREFIX, minted, now
from infra.storage.errors import retried
from infra.storage.filesystem import open_filesystem
from infra.storage.objects import remove_tree, replace
from infra.storage.users import read_url


@dataclass(frozen=True)
class Collected:
    """What a collection removed: files by name, and how many manifests became tombstones."""

    files: tuple[str, ...]
    manifests: int


@dataclass(frozen=True)
class _Found:
    age: timedelta
    size: int


@dataclass(frozen=True)
class _Doomed:
    retired: frozenset[str]
    orphans: frozenset[str]


def collect(chain: Chain, older_than: timedelta, writer: str) -> Collected:
    """Remove what was compacted away, and what was written and never committed, longer ago than `older_than`.

    Snapshots taken longer ago may expire, transactions begun longer ago may be fenced. A day is safe for both.
    """
    found = _listed(chain.url)
    doomed = _doomed(chain.latest(), chain.url, found, older_than)
    fences = {_uid(file) for file in doomed.orphans}
    if doomed.retired or fences - set(chain.latest().fenced):
        uid, at = minted(), now()

        def fenced(base: Manifest) -> Manifest:
            nonlocal doomed
            doomed = _doomed(base, chain.url, found, older_than)
            return base.model_copy(
                update={
                    "number": base.number + 1,
                    "uid": uid,
                    "writer": writer,
                    "at": at,
                    "retired": tuple(one for one in base.retired if one.file not in doomed.retired),
                    "fenced": tuple(sorted({*base.fenced, *map(_uid, doomed.orphans)})),
                }
            )

        chain.extend(uid, fenced)
    _remove(chain.url, found, doomed)
    return Collected(tuple(sorted(doomed.retired | doomed.orphans)), _bury(chain, found, older_than))


def _doomed(base: Manifest, url: str, found: Mapping[str, _Found], older_than: timedelta) -> _Doomed:
    """Files that go, judged by one manifest. What was listed before `base` was read and is not in it was not committed by then."""
    due = {one.file for one in base.retired if _age(found, one.since) >= older_than}
    needed = base.files | {one.file for one in base.retired} | _blob_files(base, url)
    orphans = {name for name, one in found.items() if name.startswith(COMMIT_PREFIX) and name not in needed and one.age >= older_than}
    return _Doomed(frozenset(due), frozenset(orphans))


def _age(found: Mapping[str, _Found], number: int) -> timedelta:
    """How long ago a commit happened; not at all if it came after the listing."""
    name = f".manifest-{number:08d}.json"
    return found[name].age if name in found else timedelta(seconds=-1)


def _blob_files(base: Manifest, url: str) -> set[str]:
    if BLOBS.name not in base.tables:
        return set()
    return {file for batch in Snapshot(url, base).batches(BLOBS.name, ["file"]) for file in batch.column(0).to_pylist()}


def _remove(url: str, found: Mapping[str, _Found], doomed: _Doomed) -> None:
    folders: dict[str, set[str]] = defaultdict(set)
    for name in found:
        if name.startswith(COMMIT_PREFIX):
            folders[name.partition("/")[0]].add(name)
    for folder, names in folders.items():
        going = names & (doomed.retired | doomed.orphans)
        if going == names:
            remove_tree(f"{url}/{folder}")
        else:
            for name in going:
                remove_tree(f"{url}/{name}")


def _bury(chain: Chain, found: Mapping[str, _Found], older_than: timedelta) -> int:
    newest = chain.latest().number
    buried = 0
    for name, one in found.items():
        match = MANIFEST_FILE.fullmatch(name)
        if match and int(match[1]) < newest and one.age >= older_than and one.size > TOMBSTONE_BYTES:
            old = read(chain.url, int(match[1]))
            if isinstance(old, Manifest):
                bury(chain.url, old)
                buried += 1
    return buried


def _listed(url: str) -> dict[str, _Found]:
    """Every file of the archive with its age, both measured by the clock of the storage: a probe is written and compared."""
    probe = f".clock-{uuid4().hex[:16]}"
    replace(f"{url}/{probe}", b"")
    filesystem, path = open_filesystem(read_url(url))
    try:
        entries = retried("list", url, lambda: filesystem.find(path, detail=True))
    finally:
        remove_tree(f"{url}/{probe}")
    names = {name.removeprefix(f"{path}/"): entry for name, entry in entries.items()}
    present = _modified(names.pop(probe))
    return {name: _Found(timedelta(seconds=present - _modified(entry)), int(entry["size"])) for name, entry in names.items()}


def _modified(entry: Mapping[str, Any]) -> float:
    """Seconds since the epoch, as the storage says: `LastModified` of S3, `mtime` of a disk, `created` of memory."""
    value = next(entry[name] for name in ("LastModified", "mtime", "created") if entry.get(name) is not None)
    return value.timestamp() if isinstance(value, datetime) else float(value)


def _uid(file: str) -> str:
    return file.partition("/")[0].removeprefix(COMMIT_PREFIX)
