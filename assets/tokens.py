"""tokenizer -> tokens -> store -> mixture: from documents to what the loader reads, and the n-gram baselines."""

from assets.lineage import each, same
from assets.partitions import PROFILE, SOURCES
from assets.report import bars, numbers, table
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact

CUTS_REPEATS = PROFILE.repeated_paragraphs == "cut"
BY_CLUSTER = PROFILE.domain_clusters is not None


@stage(program="ops.tokenizer:train_tokenizer", inputs={"normalized": each("normalized")}, group="tokens", kinds={"huggingface"})
def tokenizer(artifact: Artifact) -> Report:
    """A byte-level BPE vocabulary, learnt from a fixed sample of the train documents."""
    return Report(
        metadata={
            **numbers(artifact.stats),
            "sample": bars(artifact.stats["source_sample_bytes"], "What the vocabulary was learnt from", "bytes"),
        }
    )


@stage(
    program="ops.tokens_rest:tokenize_without_repeats" if CUTS_REPEATS else "ops.tokens:tokenize",
    config=lambda profile, source: profile.tokens_config(str(source)),
    inputs={name: same(name) for name in ("normalized", "tokenizer", *(("paragraph_duplicates",) if CUTS_REPEATS else ()))},
    partitions=SOURCES,
    group="tokens",
    kinds={"arrow"},
)
def tokens(artifact: Artifact) -> Report:
    """Token ids of every document, row by row beside its text; without repeated paragraphs if the profile has them cut."""
    return Report(metadata=numbers(artifact.stats))


@stage(
    program="ops.store:build_store_by_cluster" if BY_CLUSTER else "ops.store:build_store",
    config=lambda profile, _: profile.store_config(),
    inputs={
        **{name: each(name) for name in ("normalized", "language", "contamination", "tokens")},
        **({"cluster_assignments": each("cluster_assignments")} if BY_CLUSTER else {}),
        "quality": each(PROFILE.quality_scores),
        "exact_duplicates": same("exact_duplicates"),
        "fuzzy_duplicates": same("fuzzy_duplicates"),
    },
    group="store",
    kinds={"numpy"},
    checks={
        "counters_balance": "Documents in = every reason to drop + held out + out, per source and in total.",
        "buckets_hold_what_stays": "The train buckets' documents add up to those that are out, the held-out ones' to those held out.",
    },
)
def store(artifact: Artifact) -> Report:
    """Token caches by domain and quality, and the held-out ones. This is where flagged documents leave.

    A domain is that of the source, or a cluster of documents if the profile says `domain_clusters`.

    Look at the funnel: what each source lost, and to which rule.
    """
    ledger = artifact.read_json("ledger.json")
    stayed = ledger["total"]["documents"]
    held = {split: sum(one["documents"] for one in ledger["buckets"] if one["split"] == split) for split in ("train", "held_out")}
    return Report(
        metadata={
            **numbers(artifact.stats),
            "funnel": table({"source": key, **row["documents"]} for key, row in ledger["counters"].items()),
            "funnel_in_tokens": table({"source": key, **row["tokens"]} for key, row in ledger["counters"].items()),
            "by_bucket": table({key: value for key, value in bucket.items() if key != "folder"} for bucket in ledger["buckets"]),
            "tokens_by_bucket": bars({bucket["folder"]: bucket["tokens"] for bucket in ledger["buckets"]}, "Tokens per bucket", "tokens"),
        },
        checks={
            "counters_balance": all(balances(row["documents"]) and balances(row["tokens"]) for row in ledger["counters"].values()),
            "buckets_hold_what_stays": held == {"train": stayed["out"], "held_out": stayed["held_out"]},
        },
    )


def balances(attrition: dict[str, int]) -> bool:
    """Whether everything that was read has an outcome."""
    return attrition["read"] == sum(value for key, value in attrition.items() if key != "read")


@stage(
    program="ops.mixture:mix",
    inputs={"store": same("store")},
    group="store",
    kinds={"json"},
    checks={"weights_sum_to_one": "Each stage's weights are a distribution."},
)
def mixture(artifact: Artifact) -> Report:
    """In what proportion the buckets are read, and how often each is repeated for the run it is made for."""
    mixed = artifact.read_json("mixture.json")
    return Report(
        metadata={
            **numbers(artifact.stats),
            "epochs": bars(artifact.stats["epochs"], "Passes over each bucket in the run", "epochs"),
            "weights": bars({bucket["folder"]: bucket["weight"] for bucket in mixed["buckets"]}, "Share of sequences", "share"),
        },
        checks={"weights_sum_to_one": abs(sum(bucket["weight"] for bucket in mixed["buckets"]) - 1) < 1e-9},
    )


@stage(
    program="ops.ngram:ngram_baselines",
    inputs={"store": same("store"), "tokenizer": same("tokenizer")},
    group="store",
    kinds={"numpy"},
)
def baselines(artifact: Artifact) -> Report:
    """What counting achieves on the held-out text: a unigram and a 5-gram model. What a trained model has to beat."""
    slices = artifact.read_json("baselines.json")["slices"]
    return Report(
        metadata={
            **numbers(artifact.stats),
            "bits_per_byte": table(
                {"slice": key, "unigram": row["unigram"]["bits_per_byte"], "5-gram": row["five_gram"]["bits_per_byte"]}
                for key, row in slices.items()
            ),
        }
    )
