"""normalized -> tokens: every document's token ids, co-partitioned with the documents."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attributes import map_attributes
from ops.config import TokenizeConfig
from ops.dataflow.shard import Shard, StageFunction, Tally
from ops.dataflow.work import Output
from ops.encoder import Encoded, Encoder, encoder_of
from ops.tokenizer import END_OF_TEXT_ID, load_token_bytes

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


@program(version="2")
def tokenize(config: TokenizeConfig, normalized: Artifact, tokenizer: Artifact, out: Writer) -> TokenizeStats:
    """Encode every document, without specials: the store adds the end of text.

    Args:
        normalized: one source's documents.
        out: co-partitioned with `normalized`: `id`, `input_ids: list<int32>`, `bytes: int64` (UTF-8 bytes of the text);
            and `token_bytes.npy`, the tokenizer's own, so that whoever holds tokens can count bytes.

    Returns:
        Counts; `unsafe_cuts` are the places where a window had to end inside a piece (ids may differ from whole-text encoding
        there); the kernel, which needs no windows, has none.

    Raises:
        PoisonedShardsError: (a LossyTokenizerError in it) the tokens of a document stand for more or fewer bytes than its text has.
    """
    return tokenize_by(EncodeDocuments(config, tokenizer), config, normalized, tokenizer, out)[0]


def tokenize_by(
    function: StageFunction, config: TokenizeConfig, normalized: Artifact, tokenizer: Artifact, out: Writer
) -> tuple[TokenizeStats, Tally]:
    """Write the tokens that a stage function gives, and count them."""
    encoded = map_attributes(
        "tokens",
        normalized,
        out,
        function,
        columns=["id", "text"],
        output=Output(TOKENS, group_rows=ROWS, batch_rows=ROWS),
        execution=config.execution,
    )
    _copy(tokenizer, "token_bytes.npy", out)
    tally = encoded.tally
    stats = TokenizeStats(
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
    return stats, tally


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
    def _loaded(self) -> tuple[Encoder, Ids]:
        """Once in a worker, not once a shard."""
        with self.tokenizer.open("tokenizer.json") as stream:
            encoder = encoder_of(stream.read().decode(), self.config)
        return encoder, load_token_bytes(self.tokenizer)


def _encode(batch: pa.RecordBatch, encoder: Encoder, token_bytes: Ids, config: TokenizeConfig, tally: Tally, name: str) -> pa.RecordBatch:
    encoded = encoder.encode(batch["text"])
    sizes = pc.binary_length(batch["text"]).cast(pa.int64())
    _check_lossless(encoded, sizes.to_numpy(zero_copy_only=False), batch["id"], token_bytes, name)
    tally["tokens"] += len(encoded.ids)
    tally["bytes"] += pc.sum(sizes).as_py() or 0
    tally["long_documents"] += pc.sum(pc.greater(pc.utf8_length(batch["text"]), config.window_chars)).as_py() or 0
    tally["unsafe_cuts"] += encoded.unsafe_cuts
    lists = pa.ListArray.from_arrays(pa.array(encoded.ends.astype(np.int32)), pa.array(encoded.ids))
    return pa.RecordBatch.from_arrays([batch["id"], lists, sizes], schema=TOKENS)


def _check_lossless(encoded: Encoded, sizes: npt.NDArray[np.int64], names: pa.Array, token_bytes: Ids, shard: str) -> None:
    running = np.concatenate([[0], np.cumsum(token_bytes[encoded.ids], dtype=np.int64)])
    spelt = np.diff(running[encoded.ends])
    if wrong := np.flatnonzero(spelt != sizes).tolist():
        row = wrong[0]
        raise LossyTokenizerError(
            f"{shard}: document {names[row]} has {sizes[row]} bytes, but its tokens spell {spelt[row]}; "
            "the tokenizer normalizes text or lacks byte tokens - train one with ops.tokenizer"
        )


def _copy(artifact: Artifact, name: str, out: Writer) -> None:
    with artifact.open(name) as source, out.open(name) as stream:
        stream.write(io.BytesIO(source.read()).getbuffer())
