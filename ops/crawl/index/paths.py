"""Which files an index has: listed by its store, or named by the list of paths that the crawl publishes."""

import hashlib
import zlib

from ops.crawl.config import IndexSource
from ops.crawl.listing import Entry, SourceError, is_included, list_entries, resolve_root

MAX_STORED_BYTES = 16 << 20  # a crawl's list of 900 index files has 4 kB
MAX_LIST_BYTES = 128 << 20


def index_entries(source: IndexSource) -> list[Entry]:
    """The index files, sorted by name. Of a published list, its content stands for that of the files: crawls don't change.

    Raises:
        SourceError: the root or the list is missing or empty, or names what can't be an index file of this crawl.
    """
    if not source.paths:
        return list_entries(source)
    root = resolve_root(source.root).rstrip("/")
    url = source.paths if "://" in source.paths else f"{root}/{source.paths.lstrip('/')}"
    data = _read_list(url)
    names = [line.strip() for line in data.decode("utf-8", "replace").split("\n") if line.strip()]
    for name in names:
        if name.startswith("/") or ".." in name.split("/") or "://" in name:
            raise SourceError(f"{url} names {name[:200]!r}, which leads out of {root}; use a list of paths relative to it")
        if source.crawl not in name:
            raise SourceError(f"{url} names {name[:200]!r}, which is no file of crawl {source.crawl}; check `crawl` and `paths`")
    wanted, mark = is_included(source), hashlib.sha256(data).hexdigest()
    entries = [Entry(name, -1, f"{root}/{name}", mark) for name in sorted(set(names)) if wanted(name)]
    if not entries:
        raise SourceError(f"{url} names {len(names)} files, none of which matches {', '.join(source.include)}; correct `include`")
    return entries


def _read_list(url: str) -> bytes:
    from infra.storage.streams import open_file  # loads fsspec, which planning other sources does without

    try:
        with open_file(url) as stream:
            stored = stream.read(MAX_STORED_BYTES + 1)
    except OSError as error:  # a StorageError is one
        raise SourceError(f"the list of index files {url} can't be read ({error}); correct `paths`") from error
    if len(stored) > MAX_STORED_BYTES:
        raise SourceError(f"{url} has more than {MAX_STORED_BYTES} bytes, too many for a list of index files; correct `paths`")
    if not stored.startswith(b"\x1f\x8b"):
        return stored
    inflater = zlib.decompressobj(31)
    try:
        data = inflater.decompress(stored, MAX_LIST_BYTES + 1)
    except zlib.error as error:
        raise SourceError(f"{url} does not inflate ({error}); fetch it again") from error
    if len(data) > MAX_LIST_BYTES or not inflater.eof:
        raise SourceError(f"{url} inflates to more than {MAX_LIST_BYTES} bytes or is cut off; a list of index files is neither")
    return data
