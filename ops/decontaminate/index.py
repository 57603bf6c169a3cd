"""What must not be trained on, as an exact index: the texts of evaluations, and the held-out documents."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.decontaminate.config import EvaluationNgramsConfig
from ops.decontaminate.gather import HELD_OUT_FOLDER, KINDS, Gathered, Passages, gather_held_out, gather_sets
from ops.decontaminate.lookup import EVALUATIONS_FILE, FEATURES, FEATURES_FILE, PASSAGES, PASSAGES_FILE, PassageIndex
from ops.decontaminate.match import Matcher
from ops.decontaminate.sample import sampled_train_texts
from ops.hashing.columns import TextColumn
from ops.shards import write_table


class EvaluationStats(Stats):
    """One evaluation. A passage is guarded if any of its features is its own or shared by few; the others are templates."""

    items: int
    texts: int  # different ones
    commonplace: int  # short texts of function words alone, which everybody writes: not guarded
    passages: int
    guarded: int
    features: int


class EvaluationNgramsStats(Stats):
    """Features in the index, those that are everybody's boilerplate, and what each evaluation gave."""

    features: int
    boilerplate_features: int
    passages: int
    evaluations: dict[str, EvaluationStats]
    missing: tuple[str, ...]  # sets that are not required and have no files


@program(version="3")
def index_evaluations(config: EvaluationNgramsConfig, normalized: Artifacts, out: Writer) -> EvaluationNgramsStats:
    """Index the passages of every evaluation and of every held-out document.

    Args:
        normalized: every source; its held-out rows are the evaluation `held_out/{source}`, and its train rows
            say which features are boilerplate.
        out: `features.parquet`: `feature: uint64` ascending, `lengths: uint16` (bit n: a short passage of n words begins
            so), `passages: list<int32>` (rows of the other file), `is_boilerplate: bool`. `passages.parquet`:
            `evaluation: int32` (place in the list of `evaluations.json`), `item: str` (file:number, or a held-out
            document's id), `field`, `kind: long | short | function`, `words`, `holders` (items with this very text).

    Raises:
        EvaluationError: required sets are missing or give no features, or files changed since they were observed.
    """
    gathered, missing = gather_sets(config, out)
    if config.held_out:
        gathered += [gather_held_out(source, normalized[source], config, out) for source in sorted(normalized)]
    index = merge(gathered, config)
    is_boilerplate = find_boilerplate(index, normalized, config, out)
    write_index(index, is_boilerplate, out)
    stats = stats_of(index, gathered)
    out.write_json(
        EVALUATIONS_FILE,
        {
            "evaluations": [{"name": name, **stats[name].model_dump()} for name in stats],
            "missing": missing,
            "ngram_words": config.ngram_words,
            "function_tokens": config.function_tokens,
        },
    )
    return EvaluationNgramsStats(
        features=len(index.features),
        boilerplate_features=int(is_boilerplate.sum()),
        passages=index.passages.num_rows,
        evaluations=stats,
        missing=tuple(missing),
    )


def merge(gathered: Sequence[Gathered], config: EvaluationNgramsConfig) -> PassageIndex:
    """One sorted index of all features, each with its passages; without those that too many passages share.

    Evaluations and held-out documents are counted apart, so no evaluation loses its guard to many documents that quote it.
    """
    parts = [(number, part) for number, entry in enumerate(gathered) for part in entry.parts]
    table = pa.concat_tables([PASSAGES.empty_table(), *(_rows_of(number, part) for number, part in parts)]).combine_chunks()
    is_held_out = np.array([entry.name.startswith(HELD_OUT_FOLDER) for entry in gathered] or [False])[table["evaluation"].to_numpy()]
    features = np.concatenate([np.zeros(0, np.uint64), *(part.features for _, part in parts)])
    sizes = np.concatenate([np.zeros(0, np.int64), *(np.diff(part.starts) for _, part in parts)])
    heads = np.concatenate([np.zeros(0, np.uint64), *(part.heads for _, part in parts)])
    owners = np.repeat(np.arange(len(sizes)), sizes)
    is_template = table["holders"].to_numpy() > config.max_sharing
    features, owners = _distinct(features[~is_template[owners]], owners[~is_template[owners]])
    _, entry = np.unique(features, return_inverse=True)
    group = 2 * entry + is_held_out[owners]
    kept = np.bincount(group, minlength=1)[group] <= config.max_sharing
    features, owners = features[kept], owners[kept]
    entries, lengths = _with_heads(features, owners, heads, table["words"].to_numpy())
    return PassageIndex(
        features=entries,
        lengths=lengths,
        owner_offsets=np.append(np.searchsorted(features, entries), len(features)).astype(np.int64),
        owners=owners,
        is_boilerplate=np.zeros(len(entries), bool),
        passages=table,
        evaluations=tuple(entry.name for entry in gathered),
        ngram_words=config.ngram_words,
        function_tokens=config.function_tokens,
    )


def _rows_of(evaluation: int, part: Passages) -> pa.Table:
    kinds = pa.array(KINDS).take(pa.array(part.kinds))
    number = np.full(len(part.kinds), evaluation)
    columns = [pa.array(number), part.items, part.fields, kinds, pa.array(part.words), pa.array(part.holders)]
    return pa.table(columns, names=PASSAGES.names).cast(PASSAGES)


def _distinct(features: NDArray[np.uint64], owners: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Each pair once, by feature and then by owner."""
    order = np.lexsort((owners, features))
    features, owners = features[order], owners[order]
    first = np.ones(len(features), bool)
    first[1:] = (features[1:] != features[:-1]) | (owners[1:] != owners[:-1])
    return features[first], owners[first]


def _with_heads(
    features: NDArray[np.uint64], owners: NDArray[np.int64], heads: NDArray[np.uint64], words: NDArray[np.int32]
) -> tuple[NDArray[np.uint64], NDArray[np.uint16]]:
    """The features and the heads of short passages as one ascending array, and the lengths of the passages that each begins."""
    short = np.unique(owners[heads[owners] != 0])
    entries = np.union1d(features, heads[short])
    lengths = np.zeros(len(entries), np.uint16)
    np.bitwise_or.at(lengths, np.searchsorted(entries, heads[short]), np.left_shift(1, words[short]).astype(np.uint16))
    return entries, lengths


def write_index(index: PassageIndex, is_boilerplate: NDArray[np.bool_], out: Writer) -> None:
    """Write both files."""
    owners = pa.ListArray.from_arrays(pa.array(index.owner_offsets.astype(np.int32)), pa.array(index.owners.astype(np.int32)))
    columns = [pa.array(index.features), pa.array(index.lengths), owners.cast(FEATURES.field("passages").type), pa.array(is_boilerplate)]
    write_table(out, FEATURES_FILE, pa.table(columns, schema=FEATURES))
    write_table(out, PASSAGES_FILE, index.passages)


def stats_of(index: PassageIndex, gathered: Sequence[Gathered]) -> dict[str, EvaluationStats]:
    """What each evaluation gave, by name."""
    evaluation = index.passages["evaluation"].to_numpy()
    count = max(1, len(gathered))
    passages = np.bincount(evaluation, minlength=count)
    guarded = np.bincount(evaluation[np.unique(index.owners)], minlength=count)
    entries = np.repeat(np.arange(len(index.features)), np.diff(index.owner_offsets))
    features = np.bincount(np.unique(np.stack([evaluation[index.owners], entries]), axis=1)[0].astype(np.int64), minlength=count)
    return {
        entry.name: EvaluationStats(
            items=entry.items,
            texts=entry.texts,
            commonplace=entry.commonplace,
            passages=int(passages[number]),
            guarded=int(guarded[number]),
            features=int(features[number]),
        )
        for number, entry in enumerate(gathered)
    }


def find_boilerplate(index: PassageIndex, normalized: Artifacts, config: EvaluationNgramsConfig, out: Writer) -> NDArray[np.bool_]:
    """Entries that many train documents of many sources have: speeches, licences, formulas everyone quotes.

    A feature that is frequent in fewer sources stays a leak.
    """
    sources_with = np.zeros(len(index.features), np.int64)
    if len(normalized) < config.boilerplate_sources or not len(index.features):
        return sources_with > 0
    matcher = Matcher(index)
    for done, source in enumerate(sorted(normalized)):
        counts = np.zeros(len(index.features), np.int64)
        for texts in sampled_train_texts(normalized[source], config.boilerplate_sample_documents, config.batch_rows):
            matcher.count_documents(TextColumn.of(texts), counts)
            out.progress(done, len(normalized), "sources searched for boilerplate")
        sources_with += counts >= config.boilerplate_documents
    return sources_with >= config.boilerplate_sources
