"""embedder -> embeddings -> clusters -> cluster_assignments: what documents are about, in nested views.

Run on demand, or with the data where the profile has clusters for domains (`domain_clusters`).
"""

from assets.lineage import each, same
from assets.partitions import PROFILE, SOURCES
from assets.report import bars, first_shard, numbers, samples, table
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact

ON_DEMAND = PROFILE.domain_clusters is None
VIEW = ("clusters", "asked", "smallest_share", "least_share", "largest_share")
ROUNDING = 1e-6  # shares have six decimals


@stage(
    program="ops.label.embed:fit_embedder",
    inputs={"normalized": each("normalized")},
    group="clusters",
    kinds={"numpy"},
    on_demand=ON_DEMAND,
    checks={"knows_terms": "Some terms occur in enough documents to have a weight."},
)
def embedder(artifact: Artifact) -> Report:
    """How much each term says: its rarity among the train documents, every source with the same number of them at most."""
    return Report(metadata=numbers(artifact.stats), checks={"knows_terms": artifact.stats["terms"] > 0})


@stage(
    program="ops.label.embed:embed",
    inputs={"normalized": same("normalized"), "embedder": same("embedder")},
    partitions=SOURCES,
    group="clusters",
    kinds={"arrow"},
    on_demand=ON_DEMAND,
    checks={"most_have_a_vector": "At least nine in ten documents have a term that is weighed."},
)
def embeddings(artifact: Artifact) -> Report:
    """A vector of small integers for every document, near for texts that use the same rare words."""
    stats = artifact.stats
    return Report(metadata=numbers(stats), warnings={"most_have_a_vector": stats["empty"] <= 0.1 * stats["documents"]})


@stage(
    program="ops.label.embed_clusters:cluster_embeddings",
    inputs={"embeddings": each("embeddings")},
    group="clusters",
    kinds={"numpy"},
    on_demand=ON_DEMAND,
    checks={"no_cluster_is_too_small": "In every coarser view the smallest cluster has the share that the config grants it."},
)
def clusters(artifact: Artifact) -> Report:
    """Fine clusters of a sample by spherical k-means, and coarser views of them: each fine cluster lies in one coarse one."""
    stats = artifact.stats
    views = dict(sorted(stats["views"].items(), key=lambda item: -item[1]["clusters"]))
    return Report(
        metadata={
            **numbers(stats),
            "views": table({"view": name, **{key: view[key] for key in VIEW}} for name, view in views.items()),
            "rows_by_source": bars(stats["rows_by_source"], "What the clusters were made of", "documents"),
        },
        checks={"no_cluster_is_too_small": all(view["smallest_share"] >= view["least_share"] - ROUNDING for view in views.values())},
    )


@stage(
    program="ops.label.embed_assign:assign_clusters",
    inputs={"normalized": same("normalized"), "embeddings": same("embeddings"), "clusters": same("clusters")},
    partitions=SOURCES,
    group="clusters",
    kinds={"arrow"},
    on_demand=ON_DEMAND,
    checks={"counts_every_document": "The documents of the coarsest view's clusters add up to all."},
)
def cluster_assignments(artifact: Artifact) -> Report:
    """The cluster of every document in each view, as nested domains. -1 is no cluster: a document without any known term.

    Read the samples: documents of a cluster should be about the same.
    """
    stats = artifact.stats
    return Report(
        metadata={
            **numbers(stats),
            "coarsest": bars(stats["coarsest"], "Documents per cluster of the coarsest view", "documents"),
            "most_like_their_cluster": table(artifact.read_json("samples.json")),
            "labels_sample": samples(artifact, first_shard(artifact), _columns(artifact)),
        },
        checks={"counts_every_document": stats["documents"] == sum(stats["coarsest"].values())},
    )


def _columns(artifact: Artifact) -> list[str]:
    """`id`, `similarity`, and a column for each view."""
    return ["id", "similarity", *artifact.stats["views"]]
