"""Snapshots of live sources: under which instant each source was last asked for anew.

A snapshot is a decision, so it lies in storage beside what it decides (`{root}/.snapshots/{source}/`), one
exclusive file each; the newest one is what the lineage means by that source.
"""

import re

from infra.storage.objects import create_exclusive, list_names, read_or_none
from ops.crawl.listing import SourceError

INSTANT_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def latest_snapshot(root: str, source: str) -> str | None:
    """The instant of the newest snapshot that was asked for, or None: then the profile's own holds."""
    names = sorted(name for name in list_names(_folder(root, source)) if name.isdigit())
    if not names:
        return None
    data = read_or_none(f"{_folder(root, source)}/{names[-1]}")
    return data.decode() if data else None


def take_snapshot(root: str, source: str, instant: str) -> None:
    """Ask for a snapshot of a source at an instant (`2026-11-30T03:00:00Z`).

    Asking twice for one instant is asking once, and asking for an earlier one than the newest changes nothing: a nightly
    run that is re-executed days later does not take the lineage back.

    Raises:
        SourceError: the instant is no UTC time of that form, which as text sorts by time.
    """
    if not INSTANT.fullmatch(instant):
        raise SourceError(f"snapshot {instant!r} of source {source} is no instant in UTC; write it like 2026-11-30T03:00:00Z")
    names = sorted(name for name in list_names(_folder(root, source)) if name.isdigit())
    if (latest_snapshot(root, source) or "") >= instant:
        return
    number = int(names[-1]) + 1 if names else 1
    while not create_exclusive(f"{_folder(root, source)}/{number:06d}", instant.encode()):
        number += 1  # somebody else asked at the same moment; ours comes after theirs


def _folder(root: str, source: str) -> str:
    return f"{root}/.snapshots/{source}"
