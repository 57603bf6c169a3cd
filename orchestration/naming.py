"""Names that people type, read as nodes of the lineage: `asset` or `asset[partition]`."""

import re

from assets.lineage import STAGES
from assets.resolve import Node
from orchestration.errors import UnknownNodeError


def node_named(title: str) -> Node:
    """The node that a title names.

    Raises:
        UnknownNodeError: says which names there are.
    """
    match = re.fullmatch(r"([^\[\]]+)(?:\[([^\[\]]+)\])?", title)
    if match is None:
        raise UnknownNodeError(f"{title!r} names no node; write 'asset' or 'asset[partition]'")
    asset, partition = match.groups()
    require_asset(asset)
    partitions = STAGES[asset].partitions
    if partitions and partition not in partitions:
        what = f"has no partition {partition}" if partition else "is built by partition"
        raise UnknownNodeError(f"{asset} {what}; choose one of {', '.join(f'{asset}[{key}]' for key in sorted(partitions))}")
    if partition and not partitions:
        raise UnknownNodeError(f"{asset} has no partitions; write '{asset}'")
    return Node(asset, partition)


def require_asset(name: str) -> None:
    """Raise `UnknownNodeError` unless the lineage has an asset of this name."""
    if name not in STAGES:
        raise UnknownNodeError(f"the lineage has no asset {name!r}; choose one of {', '.join(sorted(STAGES))}")
