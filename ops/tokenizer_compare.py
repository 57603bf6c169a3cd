"""Which vocabulary is worth its cost: bits per byte at equal compute, by a model that only counts.

A larger vocabulary spends more on each token and needs fewer of them. Bits per byte of held-out text alone ignores that. So
each vocabulary is trained on growing budgets of text, the cost of each is what a transformer of a given body would have
spent on it, a power law is fitted through the points, and all are read off at one and the same cost: *FLOP-equivalent* bits
per byte. The proxy is Kneser-Ney; it ranks vocabularies of one mixture, and promises no transformer's loss.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from tokenizers import Tokenizer

from infra.artifacts.artifact import Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.config import CompareTokenizersConfig
from ops.kneser_ney import START, as_stream, count_kneser_ney
from ops.sample import HashOrderSample, hash_ids
from ops.shards import read_batches, shard_names
from ops.tokenizer import SAMPLE_KEY, load_tokenizer

Documents = list[tuple[int, str]]
"""(hash of the id, text), by hash."""


class TokenizerComparison(Stats):
    """One vocabulary. Budgets are bytes of training text, the costs FLOPs; bits_per_byte is of the held-out text."""

    vocab_size: int
    bytes_per_token: float
    flops_per_byte: float
    train_bytes: tuple[int, ...]
    train_flops: tuple[float, ...]
    bits_per_byte: tuple[float, ...]
    flop_equivalent_bits_per_byte: float
    relative: float  # to the reference, of the FLOP-equivalent bits per byte; negative is better


class CompareTokenizersStats(Stats):
    """All vocabularies, and the cost at which they are read off: what the reference spent on its largest budget."""

    reference: str
    reference_flops: float
    tokenizers: dict[str, TokenizerComparison]


@dataclass(frozen=True)
class PowerLaw:
    """y = scale * x ** -exponent + floor."""

    scale: float
    exponent: float
    floor: float

    def __call__(self, x: float) -> float:
        return float(self.scale * x**-self.exponent + self.floor)


@program(version="1")
def compare_tokenizers(
    config: CompareTokenizersConfig, normalized: Artifacts, tokenizers: Artifacts, out: Writer
) -> CompareTokenizersStats:
    """Compare vocabularies on the same text.

    Args:
        normalized: every source. Train documents are counted, held-out ones scored.
        tokenizers: by name.
        out: `comparison.json`, the stats.

    Raises:
        ValueError: the reference is none of the tokenizers, or there is no held-out text.
    """
    reference = config.reference or min(tokenizers)
    if reference not in tokenizers:
        raise ValueError(f"the reference tokenizer {reference!r} is none of {', '.join(sorted(tokenizers))}; name one of them")
    train = _documents(normalized, False, max(config.train_bytes))
    held_out = _documents(normalized, True, config.held_out_bytes)
    if not held_out:
        raise ValueError("no held-out document to score tokenizers on; raise normalize.held_out_rate or held_out_bytes")
    measured = {}
    for done, name in enumerate(sorted(tokenizers)):
        measured[name] = _measure(load_tokenizer(tokenizers[name]), train, held_out, config)
        out.progress(done + 1, len(tokenizers), "tokenizers")
    at = measured[reference].flops[-1]
    equivalent = {name: fit_power_law(one.flops, one.bits)(at) for name, one in measured.items()}
    stats = CompareTokenizersStats(
        reference=reference,
        reference_flops=at,
        tokenizers={
            name: TokenizerComparison(
                vocab_size=one.vocab_size,
                bytes_per_token=round(one.bytes_per_token, 6),
                flops_per_byte=round(one.flops_per_byte, 1),
                train_bytes=tuple(one.budgets),
                train_flops=tuple(one.flops),
                bits_per_byte=tuple(round(bits, 6) for bits in one.bits),
                flop_equivalent_bits_per_byte=round(equivalent[name], 6),
                relative=round(equivalent[name] / equivalent[reference] - 1, 6),
            )
            for name, one in measured.items()
        },
    )
    out.write_json("comparison.json", stats.model_dump(mode="json"))
    return stats


@dataclass(frozen=True)
class _Measured:
    vocab_size: int
    bytes_per_token: float
    flops_per_byte: float
    budgets: list[int]
    flops: list[float]
    bits: list[float]


def _measure(tokenizer: Tokenizer, train: Documents, held_out: Documents, config: CompareTokenizersConfig) -> _Measured:
    """Score the held-out text by a model of each budget; budgets that hold the same documents count once."""
    vocab_size = tokenizer.get_vocab_size()
    exam, exam_bytes = _encoded(tokenizer, held_out), sum(len(text.encode()) for _, text in held_out)
    exam_tokens, stream = sum(map(len, exam)), as_stream(exam)
    encoded, sizes = _encoded(tokenizer, train), np.cumsum([len(text.encode()) for _, text in train])
    flops = train_flops_per_token(config.body_parameters, config.width, vocab_size)
    found = _Measured(vocab_size, exam_bytes / exam_tokens, flops * exam_tokens / exam_bytes, [], [], [])
    for count in sorted({int(np.searchsorted(sizes, budget, side="right")) for budget in config.train_bytes} - {0}):
        model = count_kneser_ney(as_stream(encoded[:count]), vocab_size)
        nats = -float(np.log(model.probabilities(stream)[stream != START]).sum())
        found.budgets.append(int(sizes[count - 1]))
        found.flops.append(flops * sum(map(len, encoded[:count])))
        found.bits.append(bits_per_byte(nats, exam_bytes))
    return found


def bits_per_byte(nats: float, size: int) -> float:
    """Of a text of `size` bytes that costs so many nats."""
    return nats / math.log(2) / size


def train_flops_per_token(body_parameters: int, width: int, vocab_size: int) -> float:
    """6 FLOPs a parameter that multiplies: the body and the output matrix; looking an embedding up is free.

    Source: Kaplan et al. 2020 (arXiv 2001.08361), with the output matrix counted.
    """
    return 6.0 * (body_parameters + width * vocab_size)


def fit_power_law(x: Sequence[float], y: Sequence[float]) -> PowerLaw:
    """Least squares of the logarithms, for the best floor below all values.

    Raises:
        ValueError: there are fewer than three points.
    """
    if len(x) < 3:
        raise ValueError(f"a power law with a floor needs three budgets, not {len(x)}; add to train_bytes, or give more text")
    logs, values = np.log(np.asarray(x)), np.asarray(y)

    def line(floor: float) -> tuple[float, float, float]:
        slope, intercept = np.polyfit(logs, np.log(values - floor), 1)
        return slope, intercept, float(((np.exp(intercept + slope * logs) + floor - values) ** 2).sum())

    floor = float(minimize_scalar(lambda f: line(f)[2], bounds=(0.0, 0.999 * values.min()), method="bounded").x)
    slope, intercept, _ = line(floor)
    return PowerLaw(math.exp(intercept), -slope, floor)


def _encoded(tokenizer: Tokenizer, documents: Documents) -> list[NDArray[np.int32]]:
    encodings = tokenizer.encode_batch_fast([text for _, text in documents], add_special_tokens=False)
    return [np.array(encoding.ids, np.int32) for encoding in encodings]


def _documents(normalized: Artifacts, held_out: bool, budget_bytes: int) -> Documents:
    """The documents with the smallest hashes, up to a budget of bytes."""
    sample = HashOrderSample(budget_bytes)
    for hashes, texts in _rows(normalized, held_out):
        sample.add(hashes, np.array([len(text.encode()) for text in texts], np.int64))
    limit = sample.limit(budget_bytes)
    return sorted(
        (int(one), text) for hashes, texts in _rows(normalized, held_out) for one, text in zip(hashes, texts, strict=True) if one < limit
    )


def _rows(normalized: Artifacts, held_out: bool) -> Iterator[tuple[NDArray[np.uint64], list[str]]]:
    for source in sorted(normalized):
        for name in shard_names(normalized[source]):
            for batch in read_batches(normalized[source], name, ["id", "text", "is_held_out"]):
                wanted = batch.filter(batch["is_held_out"] if held_out else pc.invert(batch["is_held_out"]))
                yield hash_ids(wanted["id"].to_pylist(), SAMPLE_KEY), wanted["text"].to_pylist()
