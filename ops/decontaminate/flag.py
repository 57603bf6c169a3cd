"""Which documents hold passages of evaluations: how much of which, of whose item, and where."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attributes import document_count
from ops.dataflow.budget import Budget
from ops.dataflow.flow import Dataflow, Done
from ops.dataflow.read import read_pieces
from ops.dataflow.shard import whole_shards
from ops.dataflow.work import Output
from ops.decontaminate.config import ContaminationConfig
from ops.decontaminate.find import FOUND, FindHits, hits_of
from ops.decontaminate.judge import CONTAMINATED, CONTAMINATED_HELD_OUT, EVALUATION, KIND, SCHEMA, SPARED, JudgeHits
from ops.decontaminate.match import Matcher, matcher_of
from ops.decontaminate.report import sample_flagged
from ops.decontaminate.sample import COLUMNS, is_sampled, largest_sampled_id, share_of
from ops.shards import ROWS_PER_BATCH, shard_names


class ContaminationStats(Stats):
    """Documents flagged, by evaluation (a document may leak several), and what boilerplate rules let pass."""

    documents: int
    contaminated: int
    contaminated_held_out: int
    evaluations: dict[str, int]
    kinds: dict[str, int]  # flagged documents by what gave them away: long, short, function
    sampled_documents: int
    boilerplate_features: int  # of the index, dropped for this source: its own and everybody's
    spared: int  # documents that would be flagged if boilerplate counted


@program(version="3")
def flag_contamination(config: ContaminationConfig, normalized: Artifact, evaluation_ngrams: Artifact, out: Writer) -> ContaminationStats:
    """Flag every document that holds enough of a passage of an evaluation.

    Args:
        normalized: one source. Its held-out documents are judged against real evaluations alone.
        evaluation_ngrams: the index.
        out: co-partitioned; `id`, `is_contaminated: bool`, `max_coverage: float32` (of the passage that the document
            has most of), `evaluations: list<string>` and `hits` (of the passages that reach `min_coverage`; empty where
            none does): the evaluation, its item, the field, the kind of passage, its coverage, and the bytes of the
            text where its longest run stands. `samples.json`: flagged places for people to read.

    Raises:
        PoisonedShardsError: names the shards, and the rows, that can't be searched.

    Texts are read once: hits are found and kept, those of sampled documents tell the source's boilerplate, and then hits are judged.
    """
    matcher = matcher_of(evaluation_ngrams)
    flow = Dataflow(out, config.execution, 2 * document_count(normalized))
    shards = whole_shards(normalized, shard_names(normalized), [*COLUMNS, "text"])
    found = flow.map("hits", shards, FindHits(evaluation_ngrams, config.min_coverage), Output(FOUND, batch_rows=config.batch_rows))
    boilerplate, sampled = find_source_boilerplate(matcher, found, config)
    boilerplate |= matcher.index.is_boilerplate
    judge = JudgeHits(config, evaluation_ngrams, np.packbits(boilerplate).tobytes())
    hits = tuple(replace(shard, pieces=(piece,)) for shard, piece in zip(shards, found.pieces((*COLUMNS, "hits")), strict=True))
    judged = flow.map("flags", hits, judge, Output(SCHEMA, batch_rows=config.batch_rows))
    flow.publish(judged)
    out.write_json("samples.json", sample_flagged(judged, found, config))
    tally = judged.tally
    return ContaminationStats(
        documents=judged.rows,
        contaminated=tally[CONTAMINATED],
        contaminated_held_out=tally[CONTAMINATED_HELD_OUT],
        evaluations={key.removeprefix(EVALUATION): count for key, count in sorted(tally.items()) if key.startswith(EVALUATION)},
        kinds={key.removeprefix(KIND): count for key, count in sorted(tally.items()) if key.startswith(KIND)},
        sampled_documents=sampled,
        boilerplate_features=int(boilerplate.sum()),
        spared=tally[SPARED],
    )


def find_source_boilerplate(matcher: Matcher, found: Done, config: ContaminationConfig) -> tuple[NDArray[np.bool_], int]:
    """Entries that a share of the source's own sampled train documents have, and the size of the sample."""
    batch_bytes = Budget.of(config.execution.memory_bytes).batch_bytes
    ids = (read_pieces([piece], batch_bytes, ROWS_PER_BATCH) for piece in found.pieces(tuple(COLUMNS)))
    last = largest_sampled_id(ids, config.boilerplate_sample_documents)
    counts = np.zeros(len(matcher.index.features), np.int64)
    sampled = 0
    for piece in found.pieces((*COLUMNS, "hits")):
        for batch in read_pieces([piece], batch_bytes, ROWS_PER_BATCH):
            chosen = batch.filter(is_sampled(batch, last))
            sampled += chosen.num_rows
            matcher.count_rows(hits_of(chosen["hits"]), chosen.num_rows, counts)
            if last is not None and batch["id"][-1].as_py() > last:
                break
    return counts >= share_of(sampled, config.boilerplate_share, config.boilerplate_documents), sampled
