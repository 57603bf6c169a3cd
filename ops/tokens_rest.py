"""normalized + paragraph_duplicates -> tokens of what is left of the documents without their repeated paragraphs.

Tokens of a document are numbered in what is left of it. A document of which nothing is left but blanks has none, and the store
counts it as emptied. Labels are about whole documents: nothing but the tokens knows of the cuts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import program
from infra.artifacts.writer import Writer
from ops.config import TokenizeRestConfig
from ops.dataflow.shard import Shard, Tally
from ops.dedup.spans import without_spans
from ops.shards import MisalignedShardError, check_aligned
from ops.tokens import EncodeDocuments, TokenizeStats, tokenize_by

MARKS = ["id", "spans.list.element.start", "spans.list.element.end"]  # who keeps a paragraph is of no interest here, and most of the bytes


class TokenizeRestStats(TokenizeStats):
    """As `TokenizeStats`, of what is left; and what is not."""

    documents_cut: int
    documents_emptied: int
    bytes_cut: int


@program(version="1")
def tokenize_without_repeats(
    config: TokenizeRestConfig, normalized: Artifact, tokenizer: Artifact, paragraph_duplicates: Artifact, out: Writer
) -> TokenizeRestStats:
    """As `tokenize`, of every document without the paragraphs that are marked as repeated.

    Args:
        paragraph_duplicates: marks of every source, `config.source` among them.
        out: as `tokenize` has it; `bytes` are those of what is left.

    Raises:
        PoisonedShardsError: (a MisalignedShardError in it) the marks are of other documents; or see `tokenize`.
    """
    rest = EncodeRest(EncodeDocuments(config, tokenizer), paragraph_duplicates, config.source)
    stats, tally = tokenize_by(rest, config, normalized, tokenizer, out)
    return TokenizeRestStats(**stats.model_dump(), **{name: tally[name] for name in ("documents_cut", "documents_emptied", "bytes_cut")})


@dataclass(frozen=True)
class EncodeRest:
    """Record batches with `id` and `text` -> `TOKENS` of the texts without what is marked in them."""

    encode: EncodeDocuments
    marks: Artifact
    source: str

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        with self.marks.open(f"{self.source}/{shard.name}") as stream, pq.ParquetFile(stream) as file:
            marks = file.read(columns=MARKS).combine_chunks()
        yield from self.encode(shard, (_cut(batch, marks, shard.name, tally) for batch in batches), tally)


def _cut(batch: pa.RecordBatch, marks: pa.Table, name: str, tally: Tally) -> pa.RecordBatch:
    """The batch without the marked paragraphs. It may begin anywhere in its shard."""
    first = pc.index(marks["id"], batch["id"][0]).as_py()
    if first < 0:
        raise MisalignedShardError(f"{name}: the marks of repeated paragraphs know no {batch['id'][0]}; mark these documents")
    mine = marks.slice(first, batch.num_rows)
    check_aligned(f"{name}: repeated paragraphs", batch["id"], mine["id"])
    rest = without_spans(batch["text"], mine["spans"].combine_chunks())
    blank = pc.fill_null(pc.utf8_is_space(rest), False)
    rest = pc.if_else(blank, "", rest)
    before, after = (pc.binary_length(texts) for texts in (batch["text"], rest))
    tally["documents_cut"] += pc.sum(pc.less(after, before)).as_py()
    tally["documents_emptied"] += pc.sum(pc.equal(after, 0)).as_py()
    tally["bytes_cut"] += pc.sum(before).as_py() - pc.sum(after).as_py()
    return pa.RecordBatch.from_arrays([batch["id"], rest], names=["id", "text"])
