"""Grades of a sample of documents, by an oracle: what a quality classifier learns from."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from infra.artifacts.artifact import Artifact, Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.decontaminate.sample import COLUMNS, is_sampled, largest_sampled_id
from ops.label.config import GradeConfig
from ops.label.quality_oracle import GRADES, ChatOracle, GradeBook, Oracle, RulesOracle, excerpt_of
from ops.shards import read_batches, shard_names, write_table

GRADED = pa.schema([("id", pa.string()), ("source", pa.string()), ("kind", pa.string()), ("grade", pa.int8()), ("excerpt", pa.string())])
GRADES_FILE = "grades.parquet"
SAMPLES = 3  # of each grade, written for people to read
EXCERPT_CHARS = 400


class GradeStats(Stats):
    """Documents sampled and graded, by source, and the grades."""

    sampled: int
    graded: int
    sampled_by_source: dict[str, int]
    sources: dict[str, int]
    grades: dict[str, int]


@program(version="3")
def grade_documents(config: GradeConfig, normalized: Artifacts, out: Writer) -> GradeStats:
    """Have an oracle grade a sample of the train documents of every source.

    Args:
        out: `grades.parquet`: `id`, `source`, `kind: prose | code`, `grade: int8` and the excerpt that was graded, by source and
            id; documents without a usable answer are left out. `samples.json`: some of each grade, the best first.

    Raises:
        OracleError: the oracle can't be asked. Its answers so far are kept in `config.book`.
    """
    oracle: Oracle = RulesOracle() if config.oracle == "rules" else ChatOracle(config.url, config.model, config.timeout_s)
    book = GradeBook(oracle, Path(config.book) if config.book else None, config.budget)
    rows: dict[str, list[object]] = {name: [] for name in GRADED.names}
    sampled = dict.fromkeys(sorted(normalized), 0)
    for source in sorted(normalized):
        for document, kind, text in _sampled(normalized[source], config):
            excerpt = excerpt_of(text, config.window_chars)
            grade = book.grade(excerpt)
            sampled[source] += 1
            out.progress(sum(sampled.values()), config.documents_per_source * len(normalized), "documents", asked=book.asked)
            if grade is not None:
                for name, value in zip(GRADED.names, (document, source, kind, grade, excerpt), strict=True):
                    rows[name].append(value)
    table = pa.table(rows, schema=GRADED)
    write_table(out, GRADES_FILE, table)
    out.write_json("samples.json", [sample for grade in reversed(GRADES) for sample in _samples(table, grade)])
    return GradeStats(
        sampled=sum(sampled.values()),
        graded=table.num_rows,
        sampled_by_source=sampled,
        sources=_counts(table["source"]),
        grades=_counts(table["grade"]),
    )


def _sampled(source: Artifact, config: GradeConfig) -> Iterator[tuple[str, str, str]]:
    """(id, kind, text) of the train documents of the smallest ids."""
    names = shard_names(source)
    last = largest_sampled_id((read_batches(source, name, COLUMNS) for name in names), config.documents_per_source)
    for name in names:
        for batch in read_batches(source, name, [*COLUMNS, "text", "media_type"], 512):
            some = batch.filter(is_sampled(batch, last))
            for document, text, media_type in zip(*(some[key].to_pylist() for key in ("id", "text", "media_type")), strict=True):
                yield document, "code" if media_type in config.code_media_types else "prose", text


def _samples(table: pa.Table, grade: int) -> list[dict[str, object]]:
    """A few documents of a grade, evenly over the table, so that no source takes all places."""
    graded = table.filter(pc.equal(table["grade"], grade))
    places = sorted({place * graded.num_rows // SAMPLES for place in range(SAMPLES)}) if graded.num_rows else []
    rows: list[dict[str, object]] = graded.take(pa.array(places, pa.int64())).select(["grade", "source", "kind", "excerpt"]).to_pylist()
    return [{**row, "excerpt": str(row["excerpt"])[:EXCERPT_CHARS]} for row in rows]


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    return {str(entry["values"]): entry["counts"] for entry in sorted(pc.value_counts(column).to_pylist(), key=lambda e: e["values"])}
