"""The positional join of one shard over all attribute sets, and the checks that make it safe."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infra.artifacts.artifact import Artifact, Artifacts
from ops.attrition import Labels
from ops.config import StoreConfig
from ops.shards import MisalignedShardError, check_aligned, read_table, shard_names

QUALITIES = 5
DOMAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # a domain is a folder of the store


def read_labels(
    source: str, name: str, sets: dict[str, Artifact], duplicates: dict[str, Artifact], config: StoreConfig
) -> tuple[Labels, pa.StringArray, npt.NDArray[np.int8]]:
    """Read one shard of every attribute set: (labels, ids, quality buckets), after checking that all have the same rows."""
    documents = read_table(sets["normalized"], name, ["id", "is_held_out"])
    language = read_table(sets["language"], name, ["id", "language"])
    quality = read_table(sets["quality"], name, ["id", "score", "quality_bucket"])
    contamination = read_table(sets["contamination"], name, ["id", "is_contaminated"])
    tokens = read_table(sets["tokens"], name, ["id", "bytes"])
    flags = {kind: read_table(artifact, f"{source}/{name}", ["id", "is_duplicate"]) for kind, artifact in duplicates.items()}
    for kind, table in {"language": language, "quality": quality, "contamination": contamination, "tokens": tokens, **flags}.items():
        check_aligned(f"{source}/{name}: {kind}", documents["id"], table["id"])
    buckets = quality["quality_bucket"].to_numpy()
    if len(buckets) and not 0 <= buckets.min() <= buckets.max() < QUALITIES:
        raise ValueError(f"{source}/{name}: quality buckets {buckets.min()}..{buckets.max()} are not in 0..{QUALITIES - 1}")
    everything = np.ones(documents.num_rows, bool)
    labels = Labels(
        is_held_out=documents["is_held_out"].to_numpy(),
        is_contaminated=contamination["is_contaminated"].to_numpy(),
        is_fuzzy_duplicate=flags["fuzzy"]["is_duplicate"].to_numpy(),
        is_exact_duplicate=flags["exact"]["is_duplicate"].to_numpy(),
        is_emptied=tokens["bytes"].to_numpy() == 0,
        language_is_allowed=pc.is_in(language["language"], pa.array(config.languages, pa.string())).to_numpy()
        if config.languages
        else everything,
        quality_suffices=quality["score"].to_numpy() >= config.min_quality if config.min_quality is not None else everything,
    )
    return labels, documents["id"].combine_chunks(), buckets


def shards_of(source: str, sets: dict[str, Artifact], duplicates: dict[str, Artifact]) -> Iterator[str]:
    """The shard names of a source, the same in every attribute set and duplicate set."""
    expected = shard_names(sets["normalized"])
    others = {name: shard_names(artifact) for name, artifact in sets.items()}
    others |= {
        f"{kind} duplicates": tuple(name.rpartition("/")[2] for name in shard_names(artifact, source))
        for kind, artifact in duplicates.items()
    }
    if wrong := {name: names for name, names in others.items() if names != expected}:
        raise MisalignedShardError(f"{source}: normalized has shards {expected}, but {wrong}; rebuild them from the same documents")
    yield from expected


def check_sources(inputs: dict[str, Artifacts], config: StoreConfig) -> None:
    """Raise unless every set covers the same sources and the config names no other and only usable domains."""
    expected = set(inputs["normalized"])
    if wrong := {name: sorted(set(sets) ^ expected) for name, sets in inputs.items() if set(sets) != expected}:
        raise ValueError(f"the store's inputs disagree on the sources; in one but not the other: {wrong}")
    if unknown := sorted(set(config.domains) - expected):
        raise ValueError(f"StoreConfig.domains names {unknown}, which are no sources; the sources are {sorted(expected)}")
    domains = {config.domains.get(source, source) for source in expected}
    if unusable := sorted(domain for domain in domains if not DOMAIN.fullmatch(domain)):
        raise ValueError(f"domains {unusable} can't name folders; map their sources to names of letters, digits, '_', '.' and '-'")


def agreed_tokenizer(tokens: Artifacts) -> dict[str, Any]:
    """Vocabulary size, end-of-text id and tokenizer digest, the same for every source."""
    keys = ("vocab_size", "end_of_text_id", "tokenizer_digest")
    found = {tuple(artifact.stats[key] for key in keys) for artifact in tokens.values()}
    if len(found) != 1:
        raise ValueError(f"the sources were tokenized with {len(found)} different tokenizers: {sorted(found)}; tokenize them again")
    return dict(zip(keys, found.pop(), strict=True))
