"""attrition: what became of every source's documents, with samples, for people: data and one HTML file."""

from collections import Counter
from dataclasses import asdict

import pyarrow.parquet as pq

from infra.artifacts.artifact import Artifact, Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.cache import read_ledger, read_rule
from ops.report.config import AttritionConfig
from ops.report.funnel import SourceFunnel, funnel_of, totals
from ops.report.page import RejectExample, page_of
from ops.report.samples import LabelSets, samples_of

REPORT_FILE, FUNNEL_FILE, SAMPLES_FILE = "report.html", "funnel.json", "samples.json"
EXAMPLE_CHARS = 200


class AttritionStats(Stats):
    """Sums over the sources, and how many samples are shown."""

    records: int
    extracted: int
    distinct: int
    documents_out: int
    tokens_read: int
    tokens_out: int
    samples: int


@program(version="2")
def report_attrition(
    config: AttritionConfig,
    raw: Artifacts,
    extracted: Artifacts,
    normalized: Artifacts,
    language: Artifacts,
    quality: Artifacts,
    contamination: Artifacts,
    tokens: Artifacts,
    exact_duplicates: Artifact,
    fuzzy_duplicates: Artifact,
    store: Artifact,
    out: Writer,
) -> AttritionStats:
    """Collect the funnel and draw samples, after the fact: nothing is computed again, and no stage waits for it.

    Args:
        store: tells the rule by which it was built, and every document's outcome by its counters.
        out: gets `report.html`, `funnel.json` (a `SourceFunnel` a source) and `samples.json`.

    Raises:
        UnbalancedFunnelError, MisalignedShardError: the inputs do not belong together.
    """
    ledger = read_ledger(store)
    unfetched = {source: _reasons(raw[source], "fetch_errors.parquet", config.samples_per_outcome) for source in sorted(raw)}
    rejects = {source: _reasons(extracted[source], "rejects.parquet", config.samples_per_outcome)[1] for source in sorted(extracted)}
    funnels = [
        funnel_of(source, raw[source], extracted[source], normalized[source], ledger, unfetched[source][0]) for source in sorted(normalized)
    ]
    labels = LabelSets(
        {"normalized": normalized, "language": language, "quality": quality, "contamination": contamination, "tokens": tokens},
        {"exact": exact_duplicates, "fuzzy": fuzzy_duplicates},
        read_rule(store),
    )
    samples = samples_of(labels, config, sum(funnel.distinct for funnel in funnels), out.progress)
    out.write_json(FUNNEL_FILE, [funnel.model_dump(mode="json") for funnel in funnels])
    out.write_json(SAMPLES_FILE, [asdict(sample) for sample in samples])
    with out.open(REPORT_FILE) as stream:
        stream.write(page_of(funnels, samples, rejects, {source: examples for source, (_, examples) in unfetched.items()}).encode())
    return AttritionStats(**totals(funnels), samples=len(samples))


def read_funnels(attrition: Artifact) -> list[SourceFunnel]:
    """The funnels of a report."""
    return [SourceFunnel.model_validate(row) for row in attrition.read_json(FUNNEL_FILE)]


def _reasons(artifact: Artifact, name: str, shown: int) -> tuple[dict[str, int], list[RejectExample]]:
    """How many rows of a table of failures there are by reason, and the first ones of each."""
    counts: Counter[str] = Counter()
    examples: list[RejectExample] = []
    if name not in artifact.names:
        return {}, []
    with artifact.open(name) as stream, pq.ParquetFile(stream) as table:
        for batch in table.iter_batches(columns=["reason", "uri", "detail"]):
            for row in batch.to_pylist():
                counts[row["reason"]] += 1
                if counts[row["reason"]] <= shown:
                    examples.append(RejectExample(row["reason"], row["uri"][:EXAMPLE_CHARS], row["detail"][:EXAMPLE_CHARS]))
    return dict(counts), examples
