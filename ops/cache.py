"""The store as its readers see it: a ledger of buckets, and each bucket's tokens, mapped into memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from infra.artifacts.artifact import Artifact
from ops.attrition import Attrition
from ops.config import ClusterStoreConfig, StoreConfig
from ops.permutation import key_of, permute
from ops.shards import ROWS_PER_BATCH

LEDGER = "ledger.json"
SELECTION_BLOCK = 4096  # documents looked at together while a selection grows

Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


class Bucket(BaseModel):
    """One (split, domain, quality). `tokens` counts one end of text per document, `bytes` the text's UTF-8 bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    split: Literal["train", "held_out"]
    domain: str
    quality: int | Literal["all"]
    documents: int
    tokens: int
    bytes: int
    folder: str


class Counters(BaseModel):
    """Documents and tokens by outcome."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    documents: Attrition
    tokens: Attrition


class Ledger(BaseModel):
    """What a store holds.

    `sources` maps each source to its domain, or to the view whose clusters are the domains; `counters` has one row per source
    beside the `total`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    buckets: tuple[Bucket, ...]
    vocab_size: int
    end_of_text_id: int
    dtype: Literal["uint16", "uint32"]
    tokenizer_digest: str
    sources: dict[str, str]
    total: Counters
    counters: dict[str, Counters]

    def split(self, split: Literal["train", "held_out"]) -> tuple[Bucket, ...]:
        return tuple(bucket for bucket in self.buckets if bucket.split == split)


def read_ledger(store: Artifact) -> Ledger:
    return Ledger.model_validate(store.read_json(LEDGER))


def read_rule(store: Artifact) -> StoreConfig:
    """By which rule the documents of a store were chosen."""
    config = store.manifest.payload.get("config", {})
    return (ClusterStoreConfig if "domain_clusters" in config else StoreConfig).model_validate(config)


@dataclass(frozen=True)
class TokenCache:
    """One bucket's tokens. Arrays are memory maps: opening costs two headers, whatever the size.

    Attributes:
        tokens: [tokens] uint16 or uint32, documents one after another, each ending with the end of text.
        offsets: [documents + 1] int64: document `d` is `tokens[offsets[d]:offsets[d + 1]]`.
    """

    store: Artifact
    folder: str
    tokens: Tokens
    offsets: npt.NDArray[np.int64]

    @classmethod
    def open(cls, store: Artifact, folder: str) -> "TokenCache":
        """Map a bucket.

        Raises:
            FileNotFoundError: the store has no such bucket.
            ValueError: the store lies in an object store, or its arrays contradict each other.
        """
        tokens = np.load(store.local_path(f"{folder}/tokens.npy"), mmap_mode="r")
        offsets = np.load(store.local_path(f"{folder}/offsets.npy"), mmap_mode="r")
        if offsets[0] != 0 or offsets[-1] != len(tokens):
            raise ValueError(f"{store.url}: {folder} has offsets {offsets[0]}..{offsets[-1]} for {len(tokens)} tokens; rebuild the store")
        return cls(store, folder, tokens, offsets)

    @property
    def documents(self) -> int:
        return len(self.offsets) - 1

    def document(self, index: int) -> Tokens:
        """One document's tokens, its end of text included."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def documents_at(self, start: int, end: int) -> range:
        """Indices of the documents that own any of the tokens [start, end)."""
        first = int(np.searchsorted(self.offsets, start, side="right")) - 1
        return range(first, int(np.searchsorted(self.offsets, end, side="left")))

    def names_of(self, indices: list[int]) -> list[tuple[str, str]]:
        """(source, document id) of each index; reads only the row groups that hold them."""
        found: dict[int, tuple[str, str]] = {}
        with self.store.open(f"{self.folder}/documents.parquet") as stream, pq.ParquetFile(stream) as table:
            for group in sorted({index // ROWS_PER_BATCH for index in indices}):
                rows = table.read_row_group(group, columns=["source", "id"])
                for index in indices:
                    if index // ROWS_PER_BATCH == group:
                        row = index % ROWS_PER_BATCH
                        found[index] = (rows["source"][row].as_py(), rows["id"][row].as_py())
        return [found[index] for index in indices]


def select_documents(cache: TokenCache, max_tokens: int, max_document_tokens: int | None = None) -> list[tuple[int, int]]:
    """A spread-out part of a bucket with `max_tokens` tokens (or all of it, if it has no more).

    Args:
        max_document_tokens: two or more; of a longer document only its beginning is taken, so that no one fills the
            selection. None takes documents whole.

    Returns:
        (document index, tokens to take from its start), ascending by index. The documents are the first ones of a
        fixed permutation, so no source is preferred; a larger `max_tokens` takes the same documents and more.
        The last one taken may be cut. Single tokens are not taken: they leave nothing to predict.
    """
    left, most = max_tokens, max_tokens if max_document_tokens is None else max_document_tokens
    chosen: list[tuple[int, int]] = []
    for start in range(0, cache.documents, SELECTION_BLOCK):
        places = np.arange(start, min(start + SELECTION_BLOCK, cache.documents))
        indices = permute(places, cache.documents, key_of(cache.documents))
        lengths = cache.offsets[indices + 1] - cache.offsets[indices]
        for index, length in zip(indices.tolist(), lengths.tolist(), strict=True):
            if left < 2:
                return sorted(chosen)
            if length >= 2:
                chosen.append((index, min(length, most, left)))
                left -= chosen[-1][1]
    return sorted(chosen)


def held_out_documents(store: Artifact, domain: str, max_tokens: int, max_document_tokens: int) -> Iterator[Tokens]:
    """The held-out documents of a domain that every evaluation scores, as token arrays of two tokens or more.

    All tokens but a document's first are scored, each given some of what stands before it in its document; their bytes
    are those of `token_bytes.npy`. Models and count-based baselines that agree on both numbers are scored on the same tokens.
    """
    cache = TokenCache.open(store, held_out_folder(domain))
    for index, take in select_documents(cache, max_tokens, max_document_tokens):
        yield cache.document(index)[:take]


def held_out_folder(domain: str) -> str:
    return f"held_out/{domain}/all"


def train_folder(domain: str, quality: int) -> str:
    return f"train/{domain}/q{quality}"
