"""perplexity -> perplexity_gap: every checkpoint on one suite of texts, and each against a baseline, byte by byte."""

import dagster as dg

from assets.lineage import CHOSEN, each, same
from assets.partitions import CHECKPOINTS, PROFILE
from assets.profile import Profile
from assets.report import bars, numbers, table
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact
from ops.decontaminate.evaluations import observe
from ops.evaluation.perplexity.config import PerplexityConfig


def suite_of(profile: Profile, _: str | None) -> PerplexityConfig:
    """The suite, with fingerprints of its files; what training is kept from is no part of it either."""
    suite, guarded = profile.programs.perplexity, profile.programs.evaluation_ngrams.evaluations
    files = tuple(one.model_copy(update={"observed": observe(one.as_set)}) for one in suite.files)
    benchmarks = tuple(one.model_copy(update={"observed": observe(one)}) for one in (*suite.benchmarks, *guarded))
    return suite.model_copy(update={"files": files, "benchmarks": benchmarks})


@stage(
    program="model.eval.perplexity.score:score_text",
    inputs={"checkpoint": CHOSEN, **{name: same(name) for name in ("tokenizer", "store", "evaluation_ngrams")}},
    config=suite_of,
    partitions=CHECKPOINTS,
    group="evaluation",
    kinds={"jax"},
    owner="team:evaluation",
    automated=False,
    pool="accelerator",
)
def perplexity(artifact: Artifact) -> Report:
    """What a checkpoint pays for each byte of held-out text, of generated probes and of long documents. No benchmark's item is in it."""
    return scored_report(artifact)


def scored_report(artifact: Artifact) -> Report:
    """Bits per byte by slice, and what was left out of the suite."""
    leaks, summary = artifact.read_json("leaks.json"), artifact.read_json("summary.json")["slices"]
    return Report(
        metadata={
            **numbers(artifact.stats),
            "bits_per_byte": bars(artifact.stats["bits_per_byte"], "Bits per byte by slice", "bits per byte"),
            "slices": table({"slice": key, **row} for key, row in summary.items()),
            "left_out": table(leaks["left_out"]),
        }
    )


@stage(
    program=f"model.eval.perplexity.compare:{'compare_models' if PROFILE.repeats is None else 'compare_with_repeats'}",
    inputs={"perplexity": each("perplexity")} | ({} if PROFILE.repeats is None else {"repeats": each("repeat_perplexity")}),
    group="evaluation",
    kinds={"html"},
    owner="team:evaluation",
    automated=False,
)
def perplexity_gap(artifact: Artifact) -> Report:
    """By how many bits per byte each checkpoint is worse than the baseline, slice by slice, with intervals. Open the report: it shows
    the documents where they differ most, byte by byte."""
    return Report(
        metadata={
            "report": report_link(artifact),
            "slices": table(slice_rows(artifact)),
            "gap": bars(artifact.stats["macro_gap"], f"Mean gap to {artifact.stats['baseline']}", "bits per byte"),
        }
    )


def report_link(artifact: Artifact) -> dg.MetadataValue:  # type: ignore[type-arg]
    """Where the page lies, as a link if a browser can follow it."""
    url = artifact.url_of("report.html")
    return dg.MetadataValue.url(url if "://" in url else f"file://{url}")


def slice_rows(artifact: Artifact) -> list[dict[str, object]]:
    """The slices, worst first."""
    import pyarrow.parquet as pq  # the lineage loads without pyarrow

    columns = ["model", "baseline", "key", "ours", "theirs", "gap", "low", "high", "signal_to_noise", "bytes"]
    with artifact.open("slices.parquet") as stream:
        rows: list[dict[str, object]] = pq.read_table(stream, columns=columns).to_pylist()
    return sorted(rows, key=lambda row: -float(str(row["gap"])))
