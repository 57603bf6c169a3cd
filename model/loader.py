"""Training batches: a pure function of (seed, step), read from memory-mapped token caches. The cursor is the step."""

import numpy as np

from infra.artifacts.artifact import Artifact
from model.batch import HostBatch, batch_of
from model.batches import batch_at, sequences_before
from model.config import LoaderConfig
from model.mixing import Draws, Ints, plan_of
from ops.cache import TokenCache, read_ledger


class MixtureLoader:
    """Reads the batches of one run.

    Nothing is remembered between steps: step 7 asked for first equals step 7 after 0 to 6. A sequence is a slice of its
    bucket's token stream (documents are concatenated and chunked), so it may begin inside a document.
    """

    def __init__(self, store: Artifact, mixture: Artifact, config: LoaderConfig) -> None:
        """Read the ledger and the mixture; buckets are opened when they are first read.

        Raises:
            ValueError: the mixture was made for another store.
        """
        ledger, mixed = read_ledger(store), mixture.read_json("mixture.json")
        sizes = {bucket.folder: bucket.tokens for bucket in ledger.split("train")}
        if wrong := [b["folder"] for b in mixed["buckets"] if sizes.get(b["folder"]) != b["tokens"]]:
            raise ValueError(f"{mixture.url} mixes {wrong} of another store than {store.url}; materialize the mixture again")
        self._store, self._config, self._end_of_text = store, config, ledger.end_of_text_id
        self._folders = [bucket["folder"] for bucket in mixed["buckets"]]
        self._plan = plan_of(mixed, [sizes[folder] for folder in self._folders], config.sequence_tokens, config.seed)
        self._caches: dict[int, TokenCache] = {}

    def batch(self, step: int, rows: slice = slice(None)) -> HostBatch:
        """The batch of one step, or the rows of it that one process of many trains on.

        Args:
            step: from 0, counted over this run; there is no last one (buckets are re-shuffled and read again).
        """
        draws = self._plan.draws(self._sequences(step)[rows])
        width = self._config.sequence_tokens + 1
        windows = np.full((len(draws.window), width), self._end_of_text, np.int32)
        lengths = np.empty(len(draws.window), np.int64)
        for bucket in np.unique(draws.bucket).tolist():
            mine = np.flatnonzero(draws.bucket == bucket)
            tokens = self._cache(bucket).tokens
            starts = draws.window[mine] * self._config.sequence_tokens
            lengths[mine] = real = min(width, len(tokens))
            windows[mine, :real] = tokens[starts[:, None] + np.arange(real)]
        return batch_of(windows, self._end_of_text, lengths)

    def draws(self, step: int) -> Draws:
        """Where each sequence of a step's batch comes from; `bucket` indexes `folders`."""
        return self._plan.draws(self._sequences(step))

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(self._folders)

    def trace(self, step: int) -> list[tuple[str, str]]:
        """(source, document id) of every document that has a token in a step's batch, row by row, each once."""
        draws = self.draws(step)
        found: dict[tuple[str, str], None] = {}
        for bucket, window in zip(draws.bucket.tolist(), draws.window.tolist(), strict=True):
            cache, start = self._cache(bucket), window * self._config.sequence_tokens
            end = min(start + self._config.sequence_tokens, len(cache.tokens))
            found |= dict.fromkeys(cache.names_of(list(cache.documents_at(start, end))))
        return list(found)

    def _sequences(self, step: int) -> Ints:
        if step < 0:
            raise ValueError(f"step {step} does not exist; a run's first batch is step 0")
        return sequences_before(self._config, step) + np.arange(batch_at(self._config, step), dtype=np.int64)

    def _cache(self, bucket: int) -> TokenCache:
        if bucket not in self._caches:
            self._caches[bucket] = TokenCache.open(self._store, self._folders[bucket])
        return self._caches[bucket]
