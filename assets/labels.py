"""Labels of every document - language, quality, contamination - beside it and never in its place."""

from assets.lineage import each, same
from assets.partitions import SOURCES
from assets.report import bars, counts, first_shard, numbers, samples, table
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact

LEAST_ACCURACY = 0.95  # of one language; short documents and code under a language's name err, a broken detector errs more


@stage(
    program="ops.label.language:label_language",
    inputs={"normalized": same("normalized")},
    partitions=SOURCES,
    group="labels",
    kinds={"arrow"},
    checks={"known_languages_are_named": "Of each language whose documents the profile knows, 95 in 100 are labelled so."},
)
def language(artifact: Artifact) -> Report:
    """The language of every document, by fastText's lid.176, with its confidence. Nothing is dropped here.

    `accuracy` is by language, over documents whose language the profile knows (`known`); `accuracy_of_known` over all of them.
    """
    accuracy = artifact.stats["accuracy"]
    known, right = (sum(row[name] for row in accuracy.values()) for name in ("documents", "right"))
    return Report(
        metadata={
            **numbers(artifact.stats),
            "languages": counts(artifact.stats["languages"], "language", "documents"),
            "accuracy": table({"language": key, **row} for key, row in accuracy.items()),
            **({"known_documents": known, "accuracy_of_known": right / known} if known else {}),
            "labels_sample": samples(artifact, first_shard(artifact), ["id", "language", "score"]),
        },
        warnings={"known_languages_are_named": all(row["accuracy"] >= LEAST_ACCURACY for row in accuracy.values())},
    )


@stage(
    program="ops.label.quality:score_quality",
    inputs={"normalized": same("normalized")},
    partitions=SOURCES,
    group="labels",
    kinds={"arrow"},
)
def quality(artifact: Artifact) -> Report:
    """A score in [0, 1] by named rules, and its bucket 0 to 4 by fixed cuts. Look at the buckets' shares."""
    return Report(
        metadata={
            **numbers(artifact.stats),
            "buckets": bars(artifact.stats["buckets"], "Documents per quality bucket", "documents"),
            "labels_sample": samples(artifact, first_shard(artifact), ["id", "score", "quality_bucket"]),
        }
    )


@stage(
    program="ops.decontaminate.index:index_evaluations",
    inputs={"normalized": each("normalized")},
    group="labels",
    kinds={"numpy"},
    checks={"is_not_empty": "The index holds features: decontamination against nothing would pass everything."},
)
def evaluation_ngrams(artifact: Artifact) -> Report:
    """Every passage that training must not have seen: of the held-out documents and of the named evaluation sets."""
    evaluations = artifact.stats["evaluations"]
    return Report(
        metadata={**numbers(artifact.stats), "evaluations": table({"evaluation": key, **row} for key, row in evaluations.items())},
        checks={"is_not_empty": artifact.stats["features"] > 0},
    )


@stage(
    program="ops.decontaminate.flag:flag_contamination",
    inputs={"normalized": same("normalized"), "evaluation_ngrams": same("evaluation_ngrams")},
    partitions=SOURCES,
    group="labels",
    kinds={"arrow"},
)
def contamination(artifact: Artifact) -> Report:
    """Which documents hold a passage of an evaluation: of which item, how much of it, and where.

    Look at the samples: what everybody writes must not be here.
    """
    return Report(
        metadata={
            **numbers(artifact.stats),
            "contaminated_by": counts(artifact.stats["evaluations"], "evaluation", "documents"),
            "samples": table(artifact.read_json("samples.json")[:10]),
        }
    )
