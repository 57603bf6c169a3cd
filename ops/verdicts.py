"""What becomes of every document: the labels of one shard joined by position, decided, and kept where a later attempt finds them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from infra.artifacts.artifact import Artifact, Artifacts
from ops.config import StoreConfig
from ops.dataflow.flow import Dataflow
from ops.dataflow.shard import Piece, Shard, Tally
from ops.dataflow.work import Output
from ops.domains import Domains
from ops.join import read_labels, shards_of

# `outcome`: of ops.attrition.Outcome; `domain`: its place in the names of the store's domains.
VERDICTS = pa.schema([("id", pa.string()), ("outcome", pa.int8()), ("quality", pa.int8()), ("domain", pa.int32())])


@dataclass(frozen=True)
class JudgeShard:
    """The shard `{source}/{name}` -> `VERDICTS`, one row for each of its documents.

    Raises:
        MisalignedShardError: two attribute sets have other rows.
        ValueError: a quality bucket that there is not.
    """

    config: StoreConfig
    sets: Mapping[str, Artifacts]
    duplicates: Mapping[str, Artifact]
    domains: Domains

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        source, _, name = shard.name.partition("/")
        labels, ids, buckets = read_labels(source, name, sets_of(source, self.sets), dict(self.duplicates), self.config)
        domains = self.domains.of_shard(source, name, ids)
        yield pa.record_batch([ids, pa.array(labels.outcomes()), pa.array(buckets, pa.int8()), pa.array(domains)], schema=VERDICTS)


def judge(
    flow: Dataflow, config: StoreConfig, sets: Mapping[str, Artifacts], duplicates: Mapping[str, Artifact], domains: Domains
) -> dict[str, dict[str, Piece]]:
    """Decide every document of every source.

    Returns:
        Source -> name of the shard -> its rows of `VERDICTS`.

    Raises:
        MisalignedShardError: a source's sets have other shards.
        PoisonedShardsError: (a MisalignedShardError in it) a shard's sets have other rows.
    """
    names = [(source, name) for source in sets["normalized"] for name in shards_of(source, sets_of(source, sets), dict(duplicates))]
    shards = [Shard(f"{source}/{name}", index) for index, (source, name) in enumerate(names)]
    judged = flow.map("verdicts", shards, JudgeShard(config, sets, duplicates, domains), Output(VERDICTS), judges_rows=False)
    found: dict[str, dict[str, Piece]] = {source: {} for source in sets["normalized"]}
    for (source, name), piece in zip(names, judged.pieces(), strict=True):
        found[source][name] = piece
    return found


def sets_of(source: str, sets: Mapping[str, Artifacts]) -> dict[str, Artifact]:
    """Every set of one source."""
    return {name: artifacts[source] for name, artifacts in sets.items()}
