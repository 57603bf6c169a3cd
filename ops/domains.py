"""Which domain of the store every document is in: that of its source, or its cluster in one view."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infra.artifacts.artifact import Artifacts
from ops.label.views import clusters_in
from ops.shards import check_aligned, read_table

Places = npt.NDArray[np.int32]


class Domains(Protocol):
    """A domain for every document. It is pickled: engines judge shards wherever they like.

    Attributes:
        names: of all domains that there may be; each is a folder of the store.
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    def of_source(self, source: str) -> str:
        """What a ledger says of a whole source."""

    def of_shard(self, source: str, name: str, ids: pa.Array) -> Places:
        """Of each document of a shard the place of its domain in `names`: int32 [documents]."""


@dataclass(frozen=True)
class SourceDomains:
    """All documents of a source are in one domain. `by_source` names it for every source."""

    by_source: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.by_source.values())))

    def of_source(self, source: str) -> str:
        return self.by_source[source]

    def of_shard(self, source: str, name: str, ids: pa.Array) -> Places:
        return np.full(len(ids), self.names.index(self.by_source[source]), np.int32)


@dataclass(frozen=True)
class ClusterDomains:
    """A document's domain is its cluster in a view: `cluster_40.07`, or `cluster_40.none` where it has no known term."""

    assignments: Artifacts
    view: str

    @property
    def names(self) -> tuple[str, ...]:
        count = clusters_in(self.view)
        return (*(f"{self.view}.{number:0{len(str(count - 1))}}" for number in range(count)), f"{self.view}.none")

    def of_source(self, source: str) -> str:
        return self.view

    def of_shard(self, source: str, name: str, ids: pa.Array) -> Places:
        """As the protocol has it.

        Raises:
            MisalignedShardError: the assignments are of other documents.
            ValueError: a cluster that the view does not have.
        """
        rows = read_table(self.assignments[source], name, ["id", self.view])
        check_aligned(f"{source}/{name}: clusters", ids, rows["id"])
        places, count = rows[self.view].to_numpy().astype(np.int32), clusters_in(self.view)
        if len(places) and not -1 <= places.min() <= places.max() < count:
            raise ValueError(f"{source}/{name}: clusters {places.min()}..{places.max()} are not in -1..{count - 1}; assign them again")
        return np.where(places < 0, np.int32(count), places)


def domains_of_clusters(assignments: Artifacts, most: int) -> ClusterDomains:
    """Domains by the finest view of at most `most` clusters.

    Raises:
        ValueError: the sources were assigned to different clusters, or every view has more.
    """
    found = {(artifact.stats["clusters_digest"], tuple(artifact.stats["views"])) for artifact in assignments.values()}
    if len(found) != 1:
        raise ValueError(f"the sources were assigned to {len(found)} different sets of clusters; assign them again")
    [(_, views)] = found
    if not (few := [view for view in views if clusters_in(view) <= most]):
        raise ValueError(f"no view has at most {most} clusters, there are {', '.join(views)}; ask `clusters` for a coarser one")
    return ClusterDomains(assignments, max(few, key=clusters_in))
