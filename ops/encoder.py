"""Text columns to token ids, behind an interface: our kernel where it can, Hugging Face tokenizers everywhere.

The kernel knows the tokenizers that `ops.tokenizer` trains: their pattern, byte-level BPE, nothing normalized. It gives the
ids that the library gives (a test holds both side by side) at many times its speed, and reads Arrow buffers instead of
Python strings. Any other tokenizer is the library's.
"""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

from ops.config import TokenizeConfig
from ops.hashing.byte_pairs import EMPTY, MOST_TOKENS, SPARE, encode_column, fill_byte_ranks, fill_pairs
from ops.hashing.columns import TextColumn
from ops.hashing.pieces import LETTER, LINE_END, NUMBER, SPACE
from ops.tokenizer import PIECES
from ops.windows import windows

CODE_POINTS = 0x110000
CACHE_SLOTS = 1 << 16  # of 32 bytes, 2 MB: the frequent ones stay in a core's own cache; a megabyte of English has 25,000 pieces

Ids = NDArray[np.int32]


class Encoded(NamedTuple):
    """All rows' ids one behind the other, and [rows + 1] offsets into them.

    `unsafe_cuts` are places where a text had to be cut inside a piece; ids there may differ from those of the whole text.
    """

    ids: Ids
    ends: NDArray[np.int64]
    unsafe_cuts: int


class Encoder(Protocol):
    """Turns texts into ids without specials; `<|endoftext|>` in a text is text."""

    def encode(self, texts: pa.Array) -> Encoded: ...


class UnknownTokenizerError(ValueError):
    """The kernel does not know this kind of tokenizer; the text says what is different."""


def encoder_of(tokenizer_json: str, config: TokenizeConfig) -> Encoder:
    """The fastest encoder that gives this tokenizer's ids."""
    try:
        return KernelEncoder(tokenizer_json)
    except UnknownTokenizerError:
        return LibraryEncoder(tokenizer_json, config)


class KernelEncoder:
    """Byte-level BPE in a kernel. Keeps a cache of pieces, so one thread at a time may use it.

    Raises:
        UnknownTokenizerError: the tokenizer is of another kind.
    """

    def __init__(self, tokenizer_json: str) -> None:
        described = json.loads(tokenizer_json)
        _check_known(described)
        vocabulary: dict[str, int] = described["model"]["vocab"]
        merges = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in described["model"]["merges"]]
        self._byte_ids = np.array([vocabulary[character] for character in byte_characters()], np.int32)
        sides = np.array([(vocabulary[a], vocabulary[b], vocabulary[a + b]) for a, b in merges], np.int32).reshape(-1, 3)
        left, right, self._made = (np.ascontiguousarray(sides[:, side]) for side in range(3))
        self._pairs = np.full(1 << max(4, (2 * len(merges)).bit_length()), EMPTY)
        fill_pairs(left, right, self._pairs)
        self._byte_ranks = np.empty((256, 256), np.uint32)
        fill_byte_ranks(self._byte_ids, self._pairs, self._byte_ranks)
        self._cache = np.zeros((CACHE_SLOTS, 4), np.uint64)

    def forget(self) -> None:
        """Empty the cache of pieces, so that the next texts cost what they would cost alone. Ids never depend on it."""
        self._cache[:] = 0

    def encode(self, texts: pa.Array) -> Encoded:
        column = TextColumn.of(texts)
        ids = np.empty(int(column.offsets[-1] - column.offsets[0]) + SPARE, np.int32)
        ends = np.empty(column.rows + 1, np.int64)
        encode_column(
            column.data,
            column.offsets,
            piece_classes(),
            self._byte_ids,
            self._byte_ranks,
            self._pairs,
            self._made,
            self._cache,
            ids,
            ends,
        )
        return Encoded(ids[: ends[-1]], ends, 0)


class LibraryEncoder:
    """Hugging Face tokenizers, in windows that end where no piece does: its cost in a long text is otherwise quadratic."""

    def __init__(self, tokenizer_json: str, config: TokenizeConfig) -> None:
        self._config = config
        self._tokenizer = Tokenizer.from_str(tokenizer_json)
        self._tokenizer.encode_special_tokens = True

    def encode(self, texts: pa.Array) -> Encoded:
        """The same for every `batch_chars` and number of threads."""
        rows = texts.to_pylist()
        parts: list[Ids] = [np.empty(0, np.int32)]
        lengths, unsafe = np.zeros(len(rows), np.int64), 0
        for batch in self._batches(rows):
            encodings = self._tokenizer.encode_batch_fast([window for _, window, _ in batch], add_special_tokens=False)
            for (row, _, safe), encoding in zip(batch, encodings, strict=True):
                parts.append(np.array(encoding.ids, np.int32))
                lengths[row] += len(parts[-1])
                unsafe += not safe
        return Encoded(np.concatenate(parts), np.concatenate([[0], np.cumsum(lengths)]), unsafe)

    def _batches(self, texts: list[str]) -> Iterator[list[tuple[int, str, bool]]]:
        """Windows with their rows, of at most `batch_chars` characters and one window more."""
        batch: list[tuple[int, str, bool]] = []
        chars = 0
        for row, text in enumerate(texts):
            for window, safe in windows(text, self._config.window_chars):
                batch.append((row, window, safe))
                chars += len(window)
                if chars >= self._config.batch_chars:
                    yield batch
                    batch, chars = [], 0
        if batch:
            yield batch


def byte_characters() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2's): itself where it is printable."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


@cache
def piece_classes() -> NDArray[np.uint8]:
    """Bits of `pieces` by code point, asked of the tokenizers library itself: so its Unicode version is ours."""
    codes = np.concatenate([np.arange(0xD800, dtype="<u4"), np.arange(0xE000, CODE_POINTS, dtype="<u4")])  # all but surrogates
    characters = codes.tobytes().decode("utf-32-le")
    classes = np.zeros(CODE_POINTS, np.uint8)
    for bit, pattern in ((LETTER, r"[\p{L}\p{M}]"), (NUMBER, r"\p{N}"), (SPACE, r"\s"), (LINE_END, r"[\r\n]")):
        others = normalizers.Replace(Regex(f"{pattern}+"), "").normalize_str(characters)
        is_matched = np.zeros(CODE_POINTS, np.bool_)
        is_matched[codes] = True
        is_matched[np.frombuffer(others.encode("utf-32-le"), "<u4")] = False
        classes[is_matched] |= bit
    classes.setflags(write=False)
    return classes


def _check_known(described: dict[str, Any]) -> None:
    model, splitter = described["model"], described["pre_tokenizer"]
    plain = dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
    wanted = {"type": "BPE", "byte_fallback": False, "ignore_merges": False, **plain}
    for name, value in wanted.items():
        if (model.get(name) or value) != value:
            raise UnknownTokenizerError(f"model.{name} is {model[name]!r}, not {value!r}")
    if described["normalizer"] is not None:
        raise UnknownTokenizerError(f"it normalizes text: {described['normalizer']}")
    known = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(PIECES), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    probe = Tokenizer.from_str(json.dumps(described))
    if splitter != json.loads(_with(probe, known).to_str())["pre_tokenizer"]:
        raise UnknownTokenizerError(f"it cuts pieces by another pattern than PIECES: {splitter}")
    if any(not token["special"] for token in described["added_tokens"]):
        raise UnknownTokenizerError("it has added tokens that are not special")
    if max(len(model["merges"]), *model["vocab"].values()) >= MOST_TOKENS:
        raise UnknownTokenizerError(f"it has {MOST_TOKENS} tokens or more")
    if missing := [character for character in byte_characters() if character not in model["vocab"]]:
        raise UnknownTokenizerError(f"its vocabulary lacks {len(missing)} of the 256 bytes")


def _with(tokenizer: Tokenizer, pre_tokenizer: Any) -> Tokenizer:
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer
