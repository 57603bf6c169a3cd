"""Everything the stages said about the documents -> the store: what is trained on and what is held out, in buckets.

A bucket is a split, a domain and a quality. `build_store` takes domains from sources, `build_store_by_cluster` from clusters.

What becomes of a document is decided shard by shard (`ops.verdicts`), on any engine and for good. Its tokens are then copied in
one pass: a bucket is one file whose order is that of its sources, so the disk sets the pace, and a death begins the copy anew.
"""

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infra.artifacts.artifact import Artifact, Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attrition import Attrition, Outcome, Outcomes, attrition, count_outcomes
from ops.bucket_spill import DOCUMENTS, BucketSpill, allow_open_spills
from ops.cache import LEDGER, Bucket, Counters, Ledger, held_out_folder, train_folder
from ops.config import ClusterStoreConfig, StoreConfig
from ops.dataflow.budget import Budget
from ops.dataflow.flow import Dataflow
from ops.dataflow.read import read_pieces
from ops.dataflow.shard import Piece
from ops.domains import Domains, SourceDomains, domains_of_clusters
from ops.join import QUALITIES, agreed_tokenizer, check_sources
from ops.shards import ROWS_PER_BATCH, MisalignedShardError, check_aligned
from ops.verdicts import VERDICTS, judge

ROWS = 1024  # documents per batch of tokens: 1 M tokens of web text


class StoreStats(Stats):
    documents: Attrition
    tokens: Attrition
    train_tokens: int
    held_out_tokens: int
    train_bytes: int
    buckets: int
    vocab_size: int
    sources: dict[str, Attrition]


@program(version="2")
def build_store(
    config: StoreConfig,
    normalized: Artifacts,
    language: Artifacts,
    quality: Artifacts,
    contamination: Artifacts,
    tokens: Artifacts,
    exact_duplicates: Artifact,
    fuzzy_duplicates: Artifact,
    out: Writer,
) -> StoreStats:
    """Drop what the stages flagged, and sort the rest into token caches by split, domain and quality.

    Args:
        normalized, language, quality, contamination, tokens: one set per source, co-partitioned.
        exact_duplicates, fuzzy_duplicates: `{source}/part-*.parquet`, co-partitioned with that source.
        out: gets `ledger.json`, `token_bytes.npy` and per bucket `tokens.npy`, `offsets.npy`, `documents.parquet`.

    Returns:
        Attrition of documents and tokens, in total and per source. Tokens in buckets count one end of text a document;
        tokens in the attrition do not.

    Raises:
        MisalignedShardError: two inputs were built from different documents; inside a PoisonedShardsError where labels differ.
        ValueError: inputs disagree on sources or tokenizer, a domain is for no source, or no train document is left.

    Documents lie in a bucket by (source, shard, row), so the bytes do not depend on anything else.
    """
    inputs = {"normalized": normalized, "language": language, "quality": quality, "contamination": contamination, "tokens": tokens}
    check_sources(inputs, config)
    domains = SourceDomains({source: config.domains.get(source, source) for source in sorted(normalized)})
    return _built(config, inputs, {"exact": exact_duplicates, "fuzzy": fuzzy_duplicates}, domains, out)


@program(version="1")
def build_store_by_cluster(
    config: ClusterStoreConfig,
    normalized: Artifacts,
    language: Artifacts,
    quality: Artifacts,
    contamination: Artifacts,
    tokens: Artifacts,
    cluster_assignments: Artifacts,
    exact_duplicates: Artifact,
    fuzzy_duplicates: Artifact,
    out: Writer,
) -> StoreStats:
    """As `build_store`, but a document's domain is its cluster in the finest view of at most `domain_clusters` clusters.

    Args:
        cluster_assignments: one set per source, of the same clusters, co-partitioned.

    Raises:
        ValueError: no view is as coarse as that, or this machine lets no process open a file for each bucket.
    """
    inputs = {"normalized": normalized, "language": language, "quality": quality, "contamination": contamination, "tokens": tokens}
    inputs |= {"cluster_assignments": cluster_assignments}
    check_sources(inputs, config)
    domains = domains_of_clusters(cluster_assignments, config.domain_clusters)
    return _built(config, inputs, {"exact": exact_duplicates, "fuzzy": fuzzy_duplicates}, domains, out)


def _built(config: StoreConfig, inputs: dict[str, Artifacts], duplicates: dict[str, Artifact], domains: Domains, out: Writer) -> StoreStats:
    tokens = inputs["tokens"]
    tokenizer = agreed_tokenizer(tokens)
    allow_open_spills(len(domains.names) * (1 + QUALITIES))
    verdicts = judge(Dataflow(out, config.execution), config, inputs, duplicates, domains)
    with out.scratch_folder() as folder, ExitStack() as stack:
        dtype = "uint16" if tokenizer["vocab_size"] <= 1 << 16 else "uint32"
        build = _Build(folder, dtype, stack, tokenizer, domains, Budget.of(config.execution.memory_bytes).batch_bytes)
        for source, shards in verdicts.items():
            build.add_source(source, shards, tokens[source], out)
        ledger = build.finish(out)
    if not ledger.split("train"):
        raise ValueError(f"no train document is left of {ledger.total.documents}; loosen the filters or check the flags")
    first = next(iter(tokens.values()))
    with first.open("token_bytes.npy") as source_stream, out.open("token_bytes.npy") as stream:
        stream.write(source_stream.read())
    out.write_json(LEDGER, ledger.model_dump(mode="json"))
    return StoreStats(
        documents=ledger.total.documents,
        tokens=ledger.total.tokens,
        train_tokens=sum(bucket.tokens for bucket in ledger.split("train")),
        held_out_tokens=sum(bucket.tokens for bucket in ledger.split("held_out")),
        train_bytes=sum(bucket.bytes for bucket in ledger.split("train")),
        buckets=len(ledger.buckets),
        vocab_size=ledger.vocab_size,
        sources={source: counters.documents for source, counters in ledger.counters.items()},
    )


@dataclass
class _Build:
    """The buckets opened so far and the counters per source."""

    folder: Path
    dtype: str
    stack: ExitStack
    tokenizer: dict[str, Any]
    domains: Domains
    batch_bytes: int
    spills: dict[tuple[str, str, int], BucketSpill] = field(default_factory=dict)
    counters: dict[str, Counters] = field(default_factory=dict)
    read: int = 0

    def add_source(self, source: str, verdicts: dict[str, Piece], tokenized: Artifact, out: Writer) -> None:
        documents, tokens, read_documents, read_tokens = np.zeros(len(Outcome), np.int64), np.zeros(len(Outcome), np.int64), 0, 0
        for name, piece in verdicts.items():
            judged = pa.Table.from_batches(read_pieces([piece], self.batch_bytes, ROWS_PER_BATCH), VERDICTS)
            outcomes, row = judged["outcome"].to_numpy(), 0
            buckets = judged["domain"].to_numpy().astype(np.int64) * QUALITIES + judged["quality"].to_numpy()
            for batch in read_pieces([Piece(tokenized.url_of(name))], self.batch_bytes, ROWS):
                part = slice(row, row + batch.num_rows)
                check_aligned(f"{source}/{name}: tokens", judged["id"].slice(row, batch.num_rows), batch["id"])
                lengths = np.diff(batch["input_ids"].offsets.to_numpy()).astype(np.int64)
                self._keep(source, batch, lengths, outcomes[part], buckets[part])
                documents += count_outcomes(outcomes[part], np.ones(batch.num_rows, np.int64))
                tokens += count_outcomes(outcomes[part], lengths)
                read_tokens += int(lengths.sum())
                row += batch.num_rows
                self.read += batch.num_rows
                out.progress(self.read, None, "documents")
            if row != judged.num_rows:
                raise MisalignedShardError(f"{source}/{name}: {row} rows of tokens beside {judged.num_rows} documents; rebuild the tokens")
            read_documents += judged.num_rows
        self.counters[source] = Counters(
            documents=attrition(read_documents, documents.tolist()), tokens=attrition(read_tokens, tokens.tolist())
        )

    def finish(self, out: Writer) -> Ledger:
        """Stream every bucket into the artifact, in the order of split, domain and quality."""
        buckets = []
        for (split, domain, quality), spill in sorted(self.spills.items(), key=lambda item: (item[0][0] != "train", item[0])):
            folder = train_folder(domain, quality) if split == "train" else held_out_folder(domain)
            spill.finish(out, folder)
            label = quality if split == "train" else "all"
            sizes = {"documents": spill.documents, "tokens": spill.tokens, "bytes": spill.bytes}
            buckets.append(Bucket.model_validate({"split": split, "domain": domain, "quality": label, "folder": folder} | sizes))
            out.progress(len(buckets), len(self.spills), "buckets")
        return Ledger.model_validate(
            {
                "buckets": tuple(buckets),
                "dtype": self.dtype,
                "sources": {source: self.domains.of_source(source) for source in self.counters},
                "total": _sum(list(self.counters.values())),
                "counters": self.counters,
            }
            | self.tokenizer
        )

    def _keep(
        self, source: str, batch: pa.RecordBatch, lengths: npt.NDArray[np.int64], outcomes: Outcomes, buckets: npt.NDArray[np.int64]
    ) -> None:
        """Append the documents of a batch that stay to their buckets (domain x quality). Held-out ones are not told by quality."""
        held_out = outcomes == Outcome.HELD_OUT
        keys = np.where(held_out, buckets // QUALITIES * QUALITIES, buckets) * 2 + held_out
        staying = np.flatnonzero(held_out | (outcomes == Outcome.OUT))
        order = staying[np.argsort(keys[staying], kind="stable")]
        kept, runs = batch.take(pa.array(order)), np.flatnonzero(np.diff(keys[order], prepend=-1, append=-1))
        for start, end in pairwise(runs.tolist()):
            place, is_held_out = divmod(int(keys[order[start]]), 2)
            domain, quality = divmod(place, QUALITIES)
            split = "held_out" if is_held_out else "train"
            self._append((split, self.names[domain], quality), source, kept.slice(start, end - start), lengths[order[start:end]])

    def _append(self, key: tuple[str, str, int], source: str, kept: pa.RecordBatch, lengths: npt.NDArray[np.int64]) -> None:
        if key not in self.spills:
            self.spills[key] = self.stack.enter_context(BucketSpill(self.folder / "-".join(map(str, key)), self.dtype))
        flat = _with_ends(kept["input_ids"], lengths, self.tokenizer, source)
        names = pa.array([source] * kept.num_rows, pa.string())
        rows = pa.RecordBatch.from_arrays([names, kept["id"], pa.array(lengths + 1), kept["bytes"]], schema=DOCUMENTS)
        self.spills[key].append(rows, flat)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return self.domains.names


def _with_ends(ids: pa.ListArray, lengths: npt.NDArray[np.int64], tokenizer: dict[str, Any], source: str) -> npt.NDArray[np.int32]:
    """The lists' tokens one after another, each list followed by the end of text."""
    values = ids.flatten().to_numpy()
    if len(values) and (values.min() < 0 or values.max() >= tokenizer["vocab_size"] or (values == tokenizer["end_of_text_id"]).any()):
        raise ValueError(
            f"{source}: token ids outside 1..{tokenizer['vocab_size'] - 1} or an end of text inside a document; rebuild the tokens"
        )
    flat = np.full(len(values) + len(lengths), tokenizer["end_of_text_id"], np.int32)
    inside = np.ones(len(flat), bool)
    inside[np.cumsum(lengths + 1) - 1] = False
    flat[inside] = values
    return flat


def _sum(counters: list[Counters]) -> Counters:
    def total(parts: list[Attrition]) -> Attrition:
        return attrition(sum(part.read for part in parts), [sum(getattr(part, o.name.lower()) for part in parts) for o in Outcome])

    return Counters(documents=total([one.documents for one in counters]), tokens=total([one.tokens for one in counters]))
