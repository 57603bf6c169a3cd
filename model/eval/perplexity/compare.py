"""Models against a baseline, from their scores alone: made again without scoring anything."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import pyarrow as pa

from infra.artifacts.artifact import Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from model.eval.perplexity.gap import DocumentGap, SliceGap, document_gaps, roll_up, slice_gaps, worst
from model.eval.perplexity.heat import heat_of
from model.eval.perplexity.noise import Losses, signal_to_noise
from model.eval.perplexity.page import Comparison, Document, render
from model.eval.perplexity.scored import ScoredDocument, read_documents
from ops.evaluation.perplexity.config import PerplexityGapConfig
from ops.shards import write_table

REPORT_FILE, SLICES_FILE, DOCUMENTS_FILE = "report.html", "slices.parquet", "documents.parquet"
SLICES = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("model", "baseline", "key", "family", "source", "loss", "fidelity")),
        *(pa.field(name, pa.int64(), nullable=False) for name in ("documents", "cut_documents", "bytes")),
        *(pa.field(name, pa.float64(), nullable=False) for name in ("ours", "theirs", "gap")),
        *(pa.field(name, pa.float64()) for name in ("low", "high", "signal_to_noise")),
    ]
)
DOCUMENTS = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("model", "baseline", "key", "document", "sha256")),
        pa.field("bytes", pa.int64(), nullable=False),
        *(pa.field(name, pa.float64(), nullable=False) for name in ("ours", "theirs", "gap")),
    ]
)


class GapStats(Stats):
    """Slices, and for each model the unweighted mean of its gaps to the baseline, in bits per byte."""

    baseline: str
    slices: int
    macro_gap: dict[str, float]


@program(version="1")
def compare_models(config: PerplexityGapConfig, perplexity: Artifacts, out: Writer) -> GapStats:
    """Compare every model with the baseline.

    Args:
        perplexity: scores by model, all of one suite.
        out: gets `slices.parquet`, `documents.parquet` and `report.html`.

    Raises:
        ValueError: the baseline or a repetition isn't among the models, or two were scored on different text.
    """
    return _compare(config, perplexity, {}, out)


@program(version="1")
def compare_with_repeats(config: PerplexityGapConfig, perplexity: Artifacts, repeats: Artifacts, out: Writer) -> GapStats:
    """Compare every model with the baseline, beside the noise that repetitions of one smaller run show.

    Args:
        perplexity: scores by model, all of one suite.
        repeats: scores of runs that differ in their seeds alone, of the same suite. Their spread is a slice's noise, and the first
            of them is one more model for its signal; none of them is compared.
        out: as of `compare_models`.

    Raises:
        ValueError: as `compare_models`; or a repetition has the name of a model.
    """
    return _compare(config, perplexity, repeats, out)


def _compare(config: PerplexityGapConfig, perplexity: Artifacts, repeats: Artifacts, out: Writer) -> GapStats:
    if both := sorted(set(perplexity) & set(repeats)):
        raise ValueError(f"{both[0]!r} is a model and a repetition; give the one another name")
    baseline = config.baseline or next(iter(perplexity))
    named = {baseline, *config.repeats, *(run for runs in config.repeats.values() for run in runs)}
    if unknown := sorted(named - set(perplexity)):
        raise ValueError(f"there is no model {unknown[0]!r}; baseline and repeats choose among {', '.join(perplexity)}")
    scores = {name: list(read_documents(artifact)) for name, artifact in perplexity.items()}
    noise = _noise(config, scores, {name: _losses(list(read_documents(artifact))) for name, artifact in repeats.items()})
    comparisons, slice_rows, document_rows = list[Comparison](), list[dict[str, object]](), list[dict[str, object]]()
    for number, model in enumerate(name for name in scores if name != baseline):
        gaps = document_gaps(scores[model], scores[baseline])
        slices = slice_gaps(gaps, resamples=config.interval_resamples, level=config.interval_level, seed=config.seed)
        comparisons.append(_comparison(config, model, baseline, gaps, slices, noise))
        slice_rows += [_slice_row(model, baseline, one, noise[one.key]) for one in slices]
        document_rows += [_document_row(model, baseline, one) for one in gaps]
        out.progress(number + 1, len(scores) - 1, "models compared")
    write_table(out, SLICES_FILE, pa.Table.from_pylist(slice_rows, SLICES))
    write_table(out, DOCUMENTS_FILE, pa.Table.from_pylist(document_rows, DOCUMENTS))
    with out.open(REPORT_FILE) as stream:
        stream.write(render(f"Perplexity gaps to {baseline}", comparisons, config.interval_level).encode())
    return GapStats(
        baseline=baseline,
        slices=len({row["key"] for row in slice_rows}),
        macro_gap={found.model: found.macro for found in comparisons},
    )


def _noise(
    config: PerplexityGapConfig, scores: Mapping[str, Sequence[ScoredDocument]], repeats: Mapping[str, Losses]
) -> dict[str, float | None]:
    losses = {name: _losses(documents) for name, documents in scores.items()}
    repeated = {run for runs in config.repeats.values() for run in runs}
    models = [found for name, found in losses.items() if name not in repeated]
    groups = [[losses[name], *(losses[run] for run in runs)] for name, runs in config.repeats.items()]
    if repeats:
        models.append(next(iter(repeats.values())))
        groups.append(list(repeats.values()))
    return signal_to_noise(models, groups)


def _losses(documents: Sequence[ScoredDocument]) -> Losses:
    nats, sizes = dict[str, float](), dict[str, int]()
    for one in documents:
        nats[one.key] = nats.get(one.key, 0.0) + one.nats
        sizes[one.key] = sizes.get(one.key, 0) + one.bytes
    return {key: nats[key] / sizes[key] for key in nats}


def _comparison(
    config: PerplexityGapConfig,
    model: str,
    baseline: str,
    gaps: Sequence[DocumentGap],
    slices: Sequence[SliceGap],
    noise: dict[str, float | None],
) -> Comparison:
    return Comparison(
        model=model,
        baseline=baseline,
        macro=sum(one.gap for one in slices) / len(slices),
        slices=sorted(slices, key=lambda one: (-one.gap, one.key)),
        noise=noise,
        families=list(roll_up(slices, "family")),
        worst=[_heat(one, config.shown_bytes) for one in worst(gaps, config.worst_documents)],
    )


def _heat(gap: DocumentGap, shown_bytes: int) -> Document:
    runs, is_whole = heat_of(gap, shown_bytes)
    one = gap.document
    return Document(one.key, one.document, gap.bits_per_byte, gap.ours, gap.theirs, one.bytes, runs, is_whole, one.is_cut)


def _slice_row(model: str, baseline: str, one: SliceGap, noise: float | None) -> dict[str, object]:
    low, high = one.interval or (None, None)
    row = asdict(one)
    tags = row.pop("tags")
    del row["interval"]
    return {"model": model, "baseline": baseline, **row, **tags, "low": low, "high": high, "signal_to_noise": noise}


def _document_row(model: str, baseline: str, one: DocumentGap) -> dict[str, object]:
    document = one.document
    found = {"ours": one.ours, "theirs": one.theirs, "gap": one.bits_per_byte}
    named = {"key": document.key, "document": document.document, "sha256": document.sha256, "bytes": document.bytes}
    return {"model": model, "baseline": baseline, **named, **found}
