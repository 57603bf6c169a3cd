"""evaluation: every checkpoint on the held-out text, beside counting baselines and its prediction."""

from typing import Any

import dagster as dg

from assets.catalogued import in_catalog
from assets.lineage import CHOSEN, same
from assets.partitions import CHECKPOINTS
from assets.report import bars, numbers, table
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact


@stage(
    program="model.eval.evaluate:evaluate",
    inputs={"checkpoint": CHOSEN, **{name: same(name) for name in ("store", "tokenizer", "baselines", "prediction")}},
    partitions=CHECKPOINTS,
    group="evaluation",
    kinds={"jax"},
    owner="team:evaluation",
    automated=False,
    pool="accelerator",
    record=in_catalog,
    checks={"beats_counting": "The model needs fewer bits per byte than a unigram model, on the average over held-out slices."},
)
def evaluation(artifact: Artifact) -> Report:
    """Bits per byte on each held-out slice, with intervals, beside a unigram and a 5-gram model; and the prediction's score."""
    scored = artifact.read_json("evaluation.json")
    averages = {name: scorer["averages"]["macro_bits_per_byte"] for name, scorer in scorers(scored).items()}
    return Report(
        metadata={
            **numbers(artifact.stats),
            "bits_per_byte": table(bits_per_byte(scored)),
            "beside_baselines": bars(averages, "Held-out bits per byte (macro)", "bits per byte"),
            "by_slice": _slices_plot(scored),
            "prediction": table([{key: value for key, value in scored["prediction"].items() if key != "score"}]),
            "sample": dg.MetadataValue.md(sample_markdown(artifact)),
        },
        warnings={"beats_counting": averages["model"] < averages["unigram"]},
    )


def scorers(scored: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The model and the baselines, by name."""
    return {"model": scored["model"], **scored["baselines"]}


def bits_per_byte(scored: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per held-out slice: the model with its interval, and each baseline."""
    rows = []
    for name, measured in scored["model"]["domains"].items():
        low, high = measured["bits_per_byte_interval"] or (None, None)
        others = {other: scorer["domains"][name]["bits_per_byte"] for other, scorer in scored["baselines"].items()}
        rows.append({"slice": name, "model": measured["bits_per_byte"], "low": low, "high": high, **others, "bytes": measured["bytes"]})
    return rows


def _slices_plot(scored: dict[str, Any]) -> dg.MarkdownMetadataValue:
    """The model's bits per byte on each slice, with their intervals."""
    rows = bits_per_byte(scored)
    intervals = {row["slice"]: (row["low"], row["high"]) for row in rows if row["low"] is not None}
    return bars({row["slice"]: row["model"] for row in rows}, "Held-out bits per byte by slice", "bits per byte", intervals=intervals)


def sample_markdown(artifact: Artifact) -> str:
    """The first sample as a block of code: what the model wrote, and nothing that Markdown would eat."""
    samples = artifact.read_json("samples.json")
    return "\n\n".join(f"````text\n{sample['prompt']}{sample['text']}\n````" for sample in samples[:2])
