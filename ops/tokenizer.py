"""normalized -> tokenizer: a byte-level BPE vocabulary, learnt from a deterministic sample of the train documents."""

import io
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from infra.artifacts.artifact import Artifact, Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.config import TokenizerConfig
from ops.sample import HashOrderSample, hash_ids, share_out
from ops.shards import read_batches, shard_names
from ops.windows import windows

END_OF_TEXT, PAD = "<|endoftext|>", "<|pad|>"
SPECIALS = (END_OF_TEXT, PAD)  # ids 0 and 1
END_OF_TEXT_ID = 0

# A piece is: letters and their marks with at most one leading character, up to three digits, punctuation with a leading
# space and trailing newlines, or whitespace. `ops.windows` relies on these classes.
PIECES = r"[^\r\n\p{L}\p{M}\p{N}]?[\p{L}\p{M}]+|\p{N}{1,3}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SAMPLE_KEY = 1  # of the hash that orders documents
TRAIN_WINDOW_CHARS = 32_768  # the trainer counts pieces, so cutting texts at safe places changes nothing but its memory
ROWS = 1024  # texts in memory at once


class TokenizerStats(Stats):
    vocab_size: int
    requested_vocab_size: int
    sample_documents: int
    sample_bytes: int
    sample_tokens: int
    bytes_per_token: float
    source_sample_bytes: dict[str, int]


@program(version="1")
def train_tokenizer(config: TokenizerConfig, normalized: Artifacts, out: Writer) -> TokenizerStats:
    """Learn a vocabulary from train documents; held-out ones are never read into the sample.

    Args:
        normalized: one normalized set per source.
        out: gets `tokenizer.json` (Hugging Face tokenizers) and `token_bytes.npy` (int32 [vocab]: bytes a token
            decodes to; 0 for specials).

    Returns:
        The vocabulary's size (less than requested if the sample has too few pairs) and its compression of the sample.

    Raises:
        ValueError: there is no train document, or the budget is smaller than any.
    """
    limits = _sample_limits(config, normalized, out)
    sample = _Sample(normalized, limits, out)
    tokenizer = untrained()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_pair_count,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=config.max_token_bytes,
        show_progress=False,
    )
    tokenizer.train_from_iterator(iter(sample), trainer=trainer)
    if not sample.documents:
        raise ValueError(
            f"no train document fits the tokenizer's sample of {config.sample_bytes} bytes; raise sample_bytes or max_source_share"
        )
    sample_bytes, sample_documents = sample.bytes, sample.documents
    tokens = sum(_count_tokens(tokenizer, texts) for texts in sample)
    write_array(out, "token_bytes.npy", token_bytes_of(tokenizer))
    with out.open("tokenizer.json") as stream:
        stream.write(tokenizer.to_str(pretty=True).encode())
    return TokenizerStats(
        vocab_size=tokenizer.get_vocab_size(),
        requested_vocab_size=config.vocab_size,
        sample_documents=sample_documents,
        sample_bytes=sum(sample_bytes.values()),
        sample_tokens=tokens,
        bytes_per_token=sum(sample_bytes.values()) / tokens,
        source_sample_bytes=sample_bytes,
    )


def untrained() -> Tokenizer:
    """A byte-level BPE tokenizer without a vocabulary. It normalizes nothing: decoding gives back every byte."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(PIECES), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def load_tokenizer(artifact: Artifact) -> Tokenizer:
    """The tokenizer of a published artifact, for text that is data: `<|endoftext|>` in a document is plain text, never id 0."""
    with artifact.open("tokenizer.json") as stream:
        tokenizer = Tokenizer.from_str(stream.read().decode())
    tokenizer.encode_special_tokens = True
    return tokenizer


def load_token_bytes(artifact: Artifact) -> npt.NDArray[np.int32]:
    """Bytes per token id, int32 [vocab], of a tokenizer, tokens or store artifact."""
    with artifact.open("token_bytes.npy") as stream:
        return np.asarray(np.load(io.BytesIO(stream.read())), np.int32)


def token_bytes_of(tokenizer: Tokenizer) -> npt.NDArray[np.int32]:
    """Bytes that each token id decodes to: a byte-level token spells one character per byte; specials stand for none."""
    sizes = np.zeros(tokenizer.get_vocab_size(), np.int32)
    for token, index in tokenizer.get_vocab().items():
        sizes[index] = 0 if token in SPECIALS else len(token)
    return sizes


class _Sample:
    """The sampled texts in batches, re-iterable; counts what the last pass read."""

    def __init__(self, normalized: Artifacts, limits: dict[str, int], out: Writer) -> None:
        self._normalized, self._limits, self._out = normalized, limits, out
        self.documents = 0
        self.bytes: dict[str, int] = {}

    def __iter__(self) -> Iterator[list[str]]:
        self.documents, self.bytes = 0, dict.fromkeys(self._normalized, 0)
        for source, artifact in self._normalized.items():
            for batch in _train_rows(artifact, ["id", "text"]):
                chosen = hash_ids(batch["id"].to_pylist(), SAMPLE_KEY) < self._limits.get(source, 0)
                texts = batch["text"].filter(pa.array(chosen))
                self.documents += len(texts)
                self.bytes[source] += pc.sum(pc.binary_length(texts)).as_py() or 0
                self._out.progress(self.documents, None, "documents")
                yield [window for text in texts.to_pylist() for window, _ in windows(text, TRAIN_WINDOW_CHARS)]


def _sample_limits(config: TokenizerConfig, normalized: Artifacts, out: Writer) -> dict[str, int]:
    """Per source, the exclusive bound on id hashes that are in the sample."""
    cap_bytes = int(config.sample_bytes * config.max_source_share)
    samples = {source: HashOrderSample(cap_bytes) for source in normalized}
    read = 0
    for source, artifact in normalized.items():
        for batch in _train_rows(artifact, ["id", "text"]):
            sizes = pc.binary_length(batch["text"]).to_numpy(zero_copy_only=False).astype(np.int64)
            samples[source].add(hash_ids(batch["id"].to_pylist(), SAMPLE_KEY), sizes)
            read += batch.num_rows
            out.progress(read, None, "documents measured")
    budgets = share_out(config.sample_bytes, {source: sample.total_bytes for source, sample in samples.items()}, cap_bytes)
    return {source: samples[source].limit(budget) for source, budget in budgets.items()}


def _train_rows(artifact: Artifact, columns: list[str]) -> Iterator[pa.RecordBatch]:
    for name in shard_names(artifact):
        for batch in read_batches(artifact, name, [*columns, "is_held_out"], ROWS):
            yield batch.filter(pc.invert(batch["is_held_out"]))


def _count_tokens(tokenizer: Tokenizer, texts: list[str]) -> int:
    return sum(len(encoding) for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False))


def write_array(out: Writer, name: str, array: npt.NDArray[np.int32]) -> None:
    """Write an array as a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    with out.open(name) as stream:
        stream.write(buffer.getvalue())
