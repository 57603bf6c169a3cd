"""rules: every document judged by the published quality rules. Nothing is dropped here: the store decides."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attributes import map_attributes
from ops.dataflow.shard import Shard, Tally
from ops.dataflow.work import Output
from ops.hashing.columns import TextColumn
from ops.hashing.rule_counts import COUNTS
from ops.rules.config import RulesConfig
from ops.rules.verdicts import Verdicts, judge, rules_of, statistics_of
from ops.rules.word_list import load_phrases

STATISTICS = tuple(statistics_of(np.zeros((0, COUNTS))))
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("is_kept", pa.bool_()),
        ("failed_rules", pa.list_(pa.string())),
        *((name, pa.float32()) for name in STATISTICS),
    ]
)


class RulesStats(Stats):
    """Documents that every rule keeps, and how many each rule would drop by itself."""

    documents: int
    kept: int
    failed: dict[str, int]


@program(version="2")
def label_rules(config: RulesConfig, normalized: Artifact, out: Writer) -> RulesStats:
    """Judge every document by the rules of Gopher, C4 and FineWeb.

    Args:
        normalized: one source.
        out: co-partitioned; `id`, `is_kept: bool` (no rule fails), `failed_rules: list<string>`, and a float32 column for every
            statistic that a rule looks at (NaN where it has no denominator, or nothing to count by).

    Raises:
        WordListError: the list of bad words is missing or not the one that the config names.
        PoisonedShardsError: names the shards, and the rows, that can't be judged.
    """
    if config.c4 and config.c4.bad_words:
        load_phrases(config.c4.bad_words)  # before any shard, which would only say that it can't be done
    labelled = map_attributes(
        "rules",
        normalized,
        out,
        JudgeDocuments(config),
        columns=["id", "text"],
        output=Output(SCHEMA, batch_rows=config.batch_rows),
        execution=config.execution,
    )
    tally = labelled.tally
    failed = {rule.name: tally[f"{FAILED}{rule.name}"] for rule in rules_of(config)}
    return RulesStats(documents=labelled.rows, kept=tally[KEPT], failed=dict(sorted(failed.items())))


KEPT, FAILED = "kept", "failed/"  # what is tallied: documents that are kept, and those that fail a rule


@dataclass(frozen=True)
class JudgeDocuments:
    """Record batches with `id` and `text` -> `SCHEMA`."""

    config: RulesConfig

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            verdicts = judge(TextColumn.of(batch["text"]), self.config)
            tally[KEPT] += int(verdicts.is_kept.sum())
            for rule, rows in zip(verdicts.rules, verdicts.failed, strict=True):
                tally[f"{FAILED}{rule.name}"] += int(rows.sum())
            statistics = [pa.array(verdicts.statistics[name].astype(np.float32)) for name in STATISTICS]
            yield pa.record_batch([batch["id"], pa.array(verdicts.is_kept), failed_rules(verdicts), *statistics], schema=SCHEMA)


def failed_rules(verdicts: Verdicts) -> pa.ListArray:
    """[rows]: the names of the rules that each row fails, in the order of the rules."""
    rows, places = np.nonzero(verdicts.failed.T)
    names = pa.array([rule.name for rule in verdicts.rules], pa.string()).take(pa.array(places))
    offsets = np.searchsorted(rows, np.arange(verdicts.failed.shape[1] + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), names)
