"""Smaller vocabularies out of the one that was trained, and which of them is worth its cost. Run on demand."""

from itertools import pairwise

from assets.lineage import each, same
from assets.partitions import VOCABULARIES
from assets.report import bars, curves, numbers, table
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact

COST = ("vocab_size", "bytes_per_token", "flops_per_byte", "flop_equivalent_bits_per_byte", "relative")


@stage(
    program="ops.tokenizer_prune:prune_tokenizer",
    config=lambda profile, key: profile.vocabularies[str(key)],
    inputs={"tokenizer": same("tokenizer")},
    partitions=VOCABULARIES,
    group="tokens",
    kinds={"huggingface"},
    on_demand=True,
    checks={"has_the_asked_size": "As many tokens as asked for, or all that the trained vocabulary has where that is fewer."},
)
def pruned_tokenizer(artifact: Artifact) -> Report:
    """The trained vocabulary cut down to its first merges. All sizes are nested: a token has the same id in each."""
    stats = artifact.stats
    reachable = stats["source_vocab_size"] - stats["unreachable"]
    asked = artifact.manifest.payload["config"]["vocab_size"]
    return Report(metadata=numbers(stats), checks={"has_the_asked_size": stats["vocab_size"] == min(asked, reachable)})


@stage(
    program="ops.tokenizer_compare:compare_tokenizers",
    inputs={"normalized": each("normalized"), "tokenizers": each("pruned_tokenizer")},
    group="tokens",
    kinds={"numpy"},
    on_demand=True,
    checks={
        "larger_ones_need_fewer_tokens": "Of nested vocabularies the larger never needs more tokens for a text.",
        "text_teaches": "Every vocabulary predicts held-out text better after its largest budget than after its smallest.",
    },
)
def tokenizer_comparison(artifact: Artifact) -> Report:
    """Bits per byte of held-out text at equal compute: a larger vocabulary needs fewer tokens, and pays more for each.

    `flop_equivalent_bits_per_byte` is read off each curve at what the reference spent; `relative` to the reference, negative is
    better. The proxy counts words instead of training a transformer: it ranks vocabularies, and promises no loss.
    """
    found = artifact.stats["tokenizers"]
    by_size = sorted(found.values(), key=lambda one: one["vocab_size"])
    return Report(
        metadata={
            **numbers(artifact.stats),
            "reference": artifact.stats["reference"],
            "vocabularies": table({"vocabulary": name, **{key: one[key] for key in COST}} for name, one in found.items()),
            "compute": curves(
                {name: (one["train_flops"], one["bits_per_byte"]) for name, one in found.items()},
                "Held-out text, by what a transformer would have spent",
                "FLOPs",
                "bits per byte",
                log_x=True,
            ),
            "relative": bars(
                {name: 100 * one["relative"] for name, one in found.items()}, "FLOP-equivalent bits per byte", "% above the reference"
            ),
        },
        checks={
            "larger_ones_need_fewer_tokens": all(
                small["bytes_per_token"] <= large["bytes_per_token"] for small, large in pairwise(by_size)
            ),
            "text_teaches": all(one["bits_per_byte"][-1] < one["bits_per_byte"][0] for one in by_size),
        },
    )
