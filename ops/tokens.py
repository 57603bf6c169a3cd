"""normalized -> tokens: every document's token ids, co-partitioned with the documents."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attributes import map_attributes
from ops.config import TokenizeConfig
from ops.dataflow.shard import Shard, Tally
from ops.dataflow.work import Output
from ops.tokenizer import END_OF_TEXT_ID, load_token_bytes, load_tokenizer
from ops.windows import windows

TOKENS = pa.schema([("id", pa.string()), ("input_ids", pa.list_(pa.int32())), ("bytes", pa.int64())])
ROWS = 512  # documents per record batch: a batch of long ones (2 MB each) still fits a worker

Ids = npt.NDArray[np.int32]


class TokenizeStats(Stats):
    documents: int
    tokens: int
    bytes: int
    bytes_per_token: float
    long_documents: int
    unsafe_cuts: int
    vocab_size: int
    end_of_text_id: int
    tokenizer_digest: str


class LossyTokenizerError(ValueError):
    """A document's tokens do not stand for all of its bytes."""


@program(version="1")
def tokenize(config: TokenizeConfig, normalized: Artifact, tokenizer: Artifact, out: Writer) -> TokenizeStats:
    """Encode every document, without specials: the store adds the end of text.

    Args:
        normalized: one source's documents.
        out: co-partitioned with `normalized`: `id`, `input_ids: list<int32>`, `bytes: int64` (UTF-8 bytes of the text);
            and `token_bytes.npy`, the tokenizer's own, so that whoever holds tokens can count bytes.

    Returns:
        Counts; `unsafe_cuts` are the places where a window had to end inside a piece (ids may differ from whole-text encoding there).

    Raises:
        PoisonedShardsError: (a LossyTokenizerError in it) the tokens of a document stand for more or fewer bytes than its text has.
    """
    encoded = map_attributes(
        "tokens",
        normalized,
        out,
        EncodeDocuments(config, tokenizer),
        columns=["id", "text"],
        output=Output(TOKENS, group_rows=ROWS, batch_rows=ROWS),
        execution=config.execution,
    )
    _copy(tokenizer, "token_bytes.npy", out)
    tally = encoded.tally
    return TokenizeStats(
        documents=encoded.rows,
        tokens=tally["tokens"],
        bytes=tally["bytes"],
        bytes_per_token=tally["bytes"] / tally["tokens"] if tally["tokens"] else 0.0,
        long_documents=tally["long_documents"],
        unsafe_cuts=tally["unsafe_cuts"],
        vocab_size=len(load_token_bytes(tokenizer)),
        end_of_text_id=END_OF_TEXT_ID,
        tokenizer_digest=tokenizer.digest,
    )


@dataclass(frozen=True)
class EncodeDocuments:
    """Record batches with `id` and `text` -> `TOKENS`."""

    config: TokenizeConfig
    tokenizer: Artifact

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        encoder, token_bytes = self._loaded
        for batch in batches:
            yield _encode(batch, encoder, token_bytes, self.config, tally, shard.name)

    @cached_property
    def _loaded(self) -> tuple[Tokenizer, Ids]:
        """Once in a worker, not once a shard."""
        return load_tokenizer(self.tokenizer), load_token_bytes(self.tokenizer)


def encode_texts(texts: list[str], encoder: Tokenizer, config: TokenizeConfig) -> tuple[list[Ids], int]:
    """Encode texts in windows, at most `batch_chars` characters (and one window more) in the encoder at once.

    Returns:
        (ids per text, number of unsafe cuts). The same for every `batch_chars` and number of threads.
    """
    parts: list[list[Ids]] = [[] for _ in texts]
    unsafe = 0
    for batch in _batches(texts, config):
        encodings = encoder.encode_batch_fast([window for _, window, _ in batch], add_special_tokens=False)
        for (row, _, safe), encoding in zip(batch, encodings, strict=True):
            parts[row].append(np.array(encoding.ids, np.int32))
            unsafe += not safe
    return [np.concatenate(part) for part in parts], unsafe


def _batches(texts: list[str], config: TokenizeConfig) -> Iterator[list[tuple[int, str, bool]]]:
    batch: list[tuple[int, str, bool]] = []
    chars = 0
    for row, text in enumerate(texts):
        for window, safe in windows(text, config.window_chars):
            batch.append((row, window, safe))
            chars += len(window)
            if chars >= config.batch_chars:
                yield batch
                batch, chars = [], 0
    if batch:
        yield batch


def _encode(batch: pa.RecordBatch, encoder: Tokenizer, token_bytes: Ids, config: TokenizeConfig, tally: Tally, name: str) -> pa.RecordBatch:
    texts = batch["text"].to_pylist()
    ids, unsafe = encode_texts(texts, encoder, config)
    sizes = pc.binary_length(batch["text"]).cast(pa.int64())
    _check_lossless(ids, sizes.to_numpy(zero_copy_only=False), batch["id"], token_bytes, name)
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in ids])]).astype(np.int32)
    tally["tokens"] += int(offsets[-1])
    tally["bytes"] += pc.sum(sizes).as_py() or 0
    tally["long_documents"] += sum(len(text) > config.window_chars for text in texts)
    tally["unsafe_cuts"] += unsafe
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate([np.empty(0, np.int32), *ids])))
    return pa.RecordBatch.from_arrays([batch["id"], lists, sizes], schema=TOKENS)


def _check_lossless(ids: list[Ids], sizes: npt.NDArray[np.int64], names: pa.Array, token_bytes: Ids, shard: str) -> None:
    spelt = np.array([token_bytes[one].sum(dtype=np.int64) for one in ids], np.int64)
    if wrong := np.flatnonzero(spelt != sizes).tolist():
        row = wrong[0]
        raise LossyTokenizerError(
            f"{shard}: document {names[row]} has {sizes[row]} bytes, but its tokens spell {spelt[row]}; "
            "the tokenizer normalizes text or lacks byte tokens - train one with ops.tokenizer"
        )


def _copy(artifact: Artifact, name: str, out: Writer) -> None:
    with artifact.open(name) as source, out.open(name) as stream:
        stream.write(io.BytesIO(source.read()).getbuffer())
