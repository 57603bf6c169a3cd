"""A learnt quality score: an oracle grades a sample, a classifier learns from the grades, and every document is scored.

Nothing of it runs unless it is asked for, or the profile has the store read these scores (`quality_scores`).
"""

from assets.lineage import each, same
from assets.partitions import PROFILE, SOURCES
from assets.report import bars, curves, first_shard, numbers, samples, table
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact

ON_DEMAND = PROFILE.quality_scores != "learned_quality"
JUDGEMENT = ("documents", "auc", "spearman", "calibration_error", "mean_score", "mean_grade", "mean_squared_error", "grade_variance")
TOLERATED_CALIBRATION_ERROR = 0.1  # of a scale from 0 to 1, on which grades lie 0.25 apart


@stage(
    program="ops.label.quality_grades:grade_documents",
    inputs={"normalized": each("normalized")},
    group="labels",
    kinds={"arrow"},
    on_demand=ON_DEMAND,
    checks={
        "every_source_is_graded": "The oracle graded documents of every source that has any.",
        "most_are_graded": "At least nine in ten of the sampled documents: less means a spent budget, or answers without a grade.",
    },
)
def quality_grades(artifact: Artifact) -> Report:
    """What an oracle thinks of a sample of every source: grades from 1 to 5. The profile says who the oracle is.

    Read the samples of each grade before you trust what is learnt from them.
    """
    stats = artifact.stats
    sampled = stats["sampled_by_source"]
    return Report(
        metadata={
            **numbers(stats),
            "graded_by_source": table(
                {"source": key, "sampled": many, "graded": stats["sources"].get(key, 0)} for key, many in sampled.items()
            ),
            "grades": bars(stats["grades"], "Documents per grade", "documents"),
            "samples": table(artifact.read_json("samples.json")),
        },
        checks={"every_source_is_graded": all(stats["sources"].get(key) for key, many in sampled.items() if many)},
        warnings={"most_are_graded": stats["graded"] >= 0.9 * stats["sampled"]},
    )


@stage(
    program="ops.label.quality_model:train_quality_model",
    inputs={"grades": same("quality_grades")},
    group="labels",
    kinds={"scipy"},
    on_demand=ON_DEMAND,
    checks={
        "is_informative": "Scores differ between documents that the classifier never saw.",
        "beats_one_answer": "On those documents its squared error is below that of the mean grade as everybody's score.",
        "every_kind_is_informative": "Within each kind of document scores differ too.",
        "is_calibrated": "Mean score and mean grade lie at most 0.1 apart, in tenths of the scale.",
    },
)
def quality_model(artifact: Artifact) -> Report:
    """A classifier of words and word pairs that says which grade the oracle would give, calibrated to the grades' scale.

    All that is reported was measured on documents that neither weights nor calibration saw. Look at the kinds apart: a
    classifier that only tells code from prose looks good on both together.
    """
    report = artifact.stats["report"]
    return Report(
        metadata={
            **numbers(artifact.stats),
            "by_kind": table({"kind": kind, **{name: one[name] for name in JUDGEMENT}} for kind, one in report.items()),
            "calibration": curves(
                {"as it should be": ((0.0, 1.0), (0.0, 1.0))}
                | {
                    f"{kind} ({one['documents']})": ([b["mean_score"] for b in one["bins"]], [b["mean_grade"] for b in one["bins"]])
                    for kind, one in report.items()
                },
                "Calibration, on documents that were never seen",
                "mean score of a tenth of the scale",
                "mean grade, on the same scale",
                points=[f"{kind} ({one['documents']})" for kind, one in report.items()],
            ),
        },
        checks={
            "is_informative": report["all"]["is_informative"],
            "beats_one_answer": report["all"]["mean_squared_error"] < report["all"]["grade_variance"],
        },
        warnings={
            "every_kind_is_informative": all(one["is_informative"] for one in report.values()),
            "is_calibrated": report["all"]["calibration_error"] <= TOLERATED_CALIBRATION_ERROR,
        },
    )


@stage(
    program="ops.label.quality_model:score_by_model",
    inputs={"normalized": same("normalized"), "quality_model": same("quality_model")},
    partitions=SOURCES,
    group="labels",
    kinds={"arrow"},
    on_demand=ON_DEMAND,
    checks={"counts_every_document": "The buckets' documents add up to all."},
)
def learned_quality(artifact: Artifact) -> Report:
    """The classifier's score of every document, in [0, 1], and its bucket 0 to 4 by fixed cuts.

    Takes the place of `quality` in the store where the profile says `quality_scores: learned_quality`. Compare the buckets
    with those of `quality` before.
    """
    stats = artifact.stats
    return Report(
        metadata={
            **numbers(stats),
            "buckets": bars(stats["buckets"], "Documents per quality bucket", "documents"),
            "labels_sample": samples(artifact, first_shard(artifact), ["id", "score", "quality_bucket"]),
        },
        checks={"counts_every_document": stats["documents"] == sum(stats["buckets"].values())},
    )
