"""rules: every document judged by the published quality rules. Nothing is dropped here: the store decides."""

from collections import Counter

import numpy as np
import pyarrow as pa

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attributes import write_attributes
from ops.hashing.columns import TextColumn
from ops.hashing.rule_counts import COUNTS
from ops.rules.config import RulesConfig
from ops.rules.verdicts import judge, statistics_of

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


@program(version="1")
def label_rules(config: RulesConfig, normalized: Artifact, out: Writer) -> RulesStats:
    """Judge every document by the rules of Gopher, C4 and FineWeb.

    Args:
        normalized: one source.
        out: co-partitioned; `id`, `is_kept: bool` (no rule fails), `failed_rules: list<string>`, and a float32 column for every
            statistic that a rule looks at (NaN where it has no denominator).
    """
    failed: Counter[str] = Counter()
    documents = kept = 0

    def label(batch: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal documents, kept
        verdicts = judge(TextColumn.of(batch["text"]), config)
        is_kept = verdicts.is_kept
        documents += len(is_kept)
        kept += int(is_kept.sum())
        for rule, rows in zip(verdicts.rules, verdicts.failed, strict=True):
            failed[rule.name] += int(rows.sum())
        statistics = [pa.array(verdicts.statistics[name].astype(np.float32)) for name in STATISTICS]
        names = pa.array([verdicts.failures_of(row) for row in range(batch.num_rows)], SCHEMA.field("failed_rules").type)
        return pa.record_batch([batch["id"], pa.array(is_kept), names, *statistics], schema=SCHEMA)

    write_attributes(normalized, out, label, columns=["id", "text"], schema=SCHEMA, batch_rows=config.batch_rows)
    return RulesStats(documents=documents, kept=kept, failed=dict(sorted(failed.items())))
