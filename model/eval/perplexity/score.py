"""A checkpoint on the perplexity suite: what it pays for each token of each document."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from model.eval.perplexity.scored import DOCUMENTS_FILE, ScoredDocument, bits_per_byte, scored_document, to_table
from model.eval.tasks.language_model import LanguageModel, of_checkpoint
from model.eval.tasks.likelihood import SMALLEST_BUCKET, score
from model.eval.tasks.requests import Continuation, windows
from model.run import read_run
from ops.evaluation.perplexity.config import PerplexityConfig
from ops.evaluation.perplexity.leaks import Leak, item_hashes, without_leaks
from ops.evaluation.perplexity.providers import gather
from ops.evaluation.perplexity.slices import Slice
from ops.evaluation.perplexity.spans import encode_with_ends
from ops.shards import write_table

LEAKS_FILE, SUMMARY_FILE = "leaks.json", "summary.json"
DOCUMENTS_AT_ONCE = 64  # enough to fill batches of equal length, few enough that their tokens fit into memory


class PerplexityStats(Stats):
    """The suite in numbers."""

    slices: int
    documents: int
    bytes: int
    tokens: int
    leaked_documents: int
    bits_per_byte: dict[str, float]  # by slice


@program(version="3")
def score_text(
    config: PerplexityConfig, checkpoint: Artifact, tokenizer: Artifact, store: Artifact, evaluation_ngrams: Artifact, out: Writer
) -> PerplexityStats:
    """Score a train or branch artifact on every slice.

    Args:
        tokenizer: the checkpoint's.
        store: its held-out documents are slices, and the source of the long-context bundle.
        evaluation_ngrams: what must be in no slice.
        out: gets `documents.parquet`, `summary.json` and `leaks.json`: what was left out and why, and the hash of everything that
            was scored, for training to exclude.

    Raises:
        SliceError: a slice that can't be scored, before any is.
    """
    hashes = item_hashes(config.benchmarks)
    slices, leaks = without_leaks(gather(config, store, tokenizer), hashes, evaluation_ngrams, config.min_coverage)
    trained_tokens = read_run(checkpoint).run.loader.sequence_tokens
    model = of_checkpoint(checkpoint, tokenizer, min(config.context_tokens, trained_tokens))
    documents = list(score_slices(model, slices, config.batch_tokens, out, config.smallest_bucket_tokens))
    write_table(out, DOCUMENTS_FILE, to_table(documents))
    out.write_json(LEAKS_FILE, _manifest(config, documents, leaks, len(hashes)))
    summary = summarize(documents)
    out.write_json(SUMMARY_FILE, {"context_tokens": model.context_tokens, "slices": summary})
    return PerplexityStats(
        slices=len(summary),
        documents=len(documents),
        bytes=sum(one.bytes for one in documents),
        tokens=sum(len(one.token_nats) for one in documents),
        leaked_documents=len(leaks),
        bits_per_byte={key: row["bits_per_byte"] for key, row in summary.items()},
    )


def score_slices(
    model: LanguageModel, slices: Sequence[Slice], batch_tokens: int, out: Writer, smallest_bucket: int = SMALLEST_BUCKET
) -> Iterator[ScoredDocument]:
    """Score documents in the order of the slices, each alone: no document is another one's context."""
    waiting = [(found, document) for found in slices for document in found.documents]
    for first in range(0, len(waiting), DOCUMENTS_AT_ONCE):
        group = waiting[first : first + DOCUMENTS_AT_ONCE]
        encoded = [encode_with_ends(model.tokenizer, document.text) for _, document in group]
        requests = [list(windows(ids, model.end_id, model.context_tokens)) for ids, _ in encoded]
        asked = [Continuation(tuple(inputs), tuple(targets)) for request in requests for inputs, targets in request]

        def heard(done: int, total: int, first: int = first) -> None:
            out.progress(first, len(waiting), "documents", sequences=float(done))

        scores = iter(score(model, asked, batch_tokens, heard, smallest_bucket=smallest_bucket))
        for (found, document), (_, ends), request in zip(group, encoded, requests, strict=True):
            nats = np.concatenate([next(scores).nats.astype(np.float64) for _ in request])
            yield scored_document(found, document, ends, nats)
    out.progress(len(waiting), len(waiting), "documents")


def summarize(documents: Sequence[ScoredDocument]) -> dict[str, dict[str, float]]:
    """By slice: documents, bytes, nats and bits per byte; ratios of sums."""
    rows: dict[str, dict[str, float]] = {}
    for key, group in groupby(documents, lambda one: one.key):
        members = list(group)
        nats, size = float(sum(one.nats for one in members)), sum(one.bytes for one in members)
        rows[key] = {"documents": len(members), "bytes": size, "nats": nats, "bits_per_byte": bits_per_byte(nats, size)}
    return rows


def _manifest(config: PerplexityConfig, documents: Sequence[ScoredDocument], leaks: Sequence[Leak], hashes: int) -> dict[str, object]:
    eval_only: dict[str, list[str]] = defaultdict(list)
    for one in documents:
        eval_only[one.key].append(one.sha256)
    return {
        "benchmarks": [benchmark.name for benchmark in config.benchmarks],
        "item_texts": hashes,
        "left_out": [vars(leak) for leak in leaks],
        "eval_only_sha256": dict(eval_only),
    }
