"""Seaway's side of every stage, on the same inputs as `peers`: `python -m ops.bench.ours STAGE FOLDER`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from tokenizers import Tokenizer

from infra.artifacts.artifact import Artifact
from ops.bench import scratch
from ops.bench.clock import Work, report
from ops.bench.judging import accuracy, extraction_f1, removal
from ops.config import NormalizeConfig, TokenizeConfig
from ops.decontaminate.config import ContaminationConfig, EvaluationNgramsConfig, EvaluationSet
from ops.decontaminate.evaluations import observe
from ops.decontaminate.flag import flag_contamination
from ops.decontaminate.index import index_evaluations
from ops.dedup.candidates import propose_links
from ops.dedup.components import components_of
from ops.dedup.config import ExactDedupConfig, FuzzyDedupConfig, MinhashConfig
from ops.dedup.exact import exact_duplicates
from ops.dedup.fuzzy import fuzzy_duplicates
from ops.dedup.minhash import Hasher
from ops.dedup.minhash import minhash as minhash_program
from ops.dedup.numbering import Numbering
from ops.encoder import KernelEncoder, encoder_of
from ops.extract import http_message
from ops.extract.config import ExtractConfig
from ops.extract.documents import extract as extract_program
from ops.extract.html import html_extractor
from ops.extract.records import Record, read_records
from ops.hashing.columns import TextColumn
from ops.label.config import LanguageConfig
from ops.label.language import label_language, label_texts
from ops.normalize import hex_ids, normalize, text_digests
from ops.rules.config import RulesConfig
from ops.rules.labels import label_rules
from ops.rules.verdicts import judge as judge_by_rules
from ops.shards import read_table, shard_names
from ops.tokenizer import token_bytes_of
from ops.tokens import tokenize

SHARD = "part-00000-of-00001.parquet"
DATATROVE_MINHASH = MinhashConfig(shingle="word", shingle_width=5, num_bands=14, band_rows=8)
MAX_BYTES = 1 << 28
READ_ROWS = 512  # of texts: what the decoder touches stays in the caches


def _column(folder: Path, name: str, column: str = "text") -> pa.Array:
    return pq.read_table(folder / name, columns=[column])[column].combine_chunks()


def _size(texts: pa.Array) -> int:
    return int(pc.sum(pc.binary_length(texts)).as_py())


def warc(folder: Path) -> Work:
    """Framing, HTTP, transfer and content codings: payload bytes of every response."""

    def run() -> list[int]:
        with (folder / "pages.warc.gz").open("rb") as stream:
            blocks = (item.block for item in read_records(stream, MAX_BYTES) if isinstance(item, Record) and item.kind == "response")
            return [len(http_message.decoded(http_message.parse_response(block), MAX_BYTES)) for block in blocks]

    sizes = run()
    return Work(len(sizes), sum(sizes), run, lambda found: {"records": len(found)}, repeatable=True)


def extract(folder: Path) -> Work:
    pages, wanted = _column(folder, "articles.parquet", "html").to_pylist(), _column(folder, "articles.parquet", "wanted").to_pylist()
    extractor = html_extractor(ExtractConfig().html)
    extractor(pages[0])
    size = sum(len(page.encode()) for page in pages)
    return Work(len(pages), size, lambda: [extractor(page) for page in pages], lambda found: extraction_f1(found, wanted), repeatable=True)


def language(folder: Path) -> Work:
    texts, wanted = _column(folder, "languages.parquet"), _column(folder, "languages.parquet", "wanted").to_pylist()
    config = LanguageConfig()
    label_texts(texts[:2], config)
    return Work(len(texts), _size(texts), lambda: label_texts(texts, config)[0], lambda found: accuracy(found, wanted), repeatable=True)


def exact(folder: Path) -> Work:
    """Read, hash, group across sources; flags are written."""
    work, texts = Path(mkdtemp(dir=folder)), _column(folder, "exact.parquet")
    first_copy = len(texts) * 20 // 21

    def run() -> int:
        round_ = Path(mkdtemp(dir=work))
        with pq.ParquetFile(folder / "exact.parquet", memory_map=True) as file:
            digests = b"".join(text_digests(batch["text"]) for batch in file.iter_batches(READ_ROWS, columns=["text"]))
        halves = np.frombuffer(digests, ">u8").reshape(-1, 2)
        sides = {"copies": halves[first_copy:], "originals": halves[:first_copy]}
        sources = {name: _identified(round_ / name, side) for name, side in sides.items()}
        return int(scratch.build(exact_duplicates, ExactDedupConfig(), round_ / "flags", normalized=sources).stats["duplicates"])

    def _identified(directory: Path, side: NDArray[np.uint64]) -> Artifact:
        ids = hex_ids(side[np.lexsort((side[:, 1], side[:, 0]))].tobytes())
        return scratch.tables(directory, {SHARD: pa.table({"id": ids, "is_held_out": pa.repeat(pa.scalar(False), len(ids))})})

    return Work(len(texts), _size(texts), run, lambda removed: {"removed": removed}, repeatable=True)


def minhash(folder: Path) -> Work:
    """Signatures of datatrove's shape, links through local disk, components; texts are not compared."""
    table, copies = pq.read_table(folder / "copies.parquet"), json.loads((folder / "copies.json").read_text())
    work = Path(mkdtemp(dir=folder))
    source = scratch.tables(work / "in", {SHARD: table})
    scratch.build(minhash_program, DATATROVE_MINHASH, work / "warm", normalized=source)

    def run() -> set[str]:
        round_ = Path(mkdtemp(dir=work))
        signatures = scratch.build(minhash_program, DATATROVE_MINHASH, round_ / "signatures", normalized=source)
        out, numbering = scratch.writer(round_ / "links"), Numbering.of({"bench": source})
        links = propose_links({"bench": signatures}, numbering, FuzzyDedupConfig().max_bucket_documents, out)
        found = components_of(links.left, links.right)
        return set(table["id"].take(pa.array(found.members[found.members != found.heads])).to_pylist())

    def judge(removed: set[str]) -> dict[str, float]:
        return {**removal(removed, copies), "removed": len(removed)}

    return Work(table.num_rows, _size(table["text"]), run, judge, repeatable=True)


def decontamination(folder: Path) -> Work:
    """From a Parquet file to flags in another; the index is built before."""
    table, evaluations = pq.read_table(folder / "texts.parquet"), json.loads((folder / "evaluations.json").read_text())
    work = Path(mkdtemp(dir=folder))
    (work / "items.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in evaluations["texts"]))
    planted = EvaluationSet(name="bench", root=str(work), glob="items.jsonl", fields=("text",))
    documents = table.append_column("is_held_out", pa.array(np.zeros(table.num_rows, bool)))
    source = scratch.tables(work / "in", {SHARD: documents})
    config = EvaluationNgramsConfig(evaluations=(planted.model_copy(update={"observed": observe(planted)}),), held_out=False)
    index = scratch.build(index_evaluations, config, work / "index", normalized={"bench": source})
    few = scratch.tables(work / "few", {SHARD: documents.slice(0, 2)})
    scratch.build(flag_contamination, ContaminationConfig(), work / "warm", normalized=few, evaluation_ngrams=index)

    def run() -> set[str]:
        found = scratch.build(
            flag_contamination, ContaminationConfig(), Path(mkdtemp(dir=work)), normalized=source, evaluation_ngrams=index
        )
        flags = read_table(found, SHARD, ["id", "is_contaminated"])
        return set(flags["id"].filter(flags["is_contaminated"]).to_pylist())

    def judge(flagged: set[str]) -> dict[str, float]:
        wanted = evaluations["documents"]
        return {"recall": len(flagged & set(wanted)) / len(wanted), "flagged": len(flagged)}

    return Work(table.num_rows, _size(table["text"]), run, judge, repeatable=True)


def rules(folder: Path) -> Work:
    texts, config = _column(folder, "texts.parquet"), RulesConfig()
    judge_by_rules(TextColumn.of(texts[:2]), config)

    def judge(found: dict[str, list[bool]]) -> dict[str, float]:
        quality: dict[str, float] = {f"{family} kept": sum(kept) for family, kept in found.items()}
        if (other := folder / "verdicts.json").exists():
            theirs = json.loads(other.read_text())
            quality |= {f"{name} agrees": sum(map(bool.__eq__, theirs[name], kept)) / len(kept) for name, kept in found.items()}
        return quality

    def run() -> dict[str, list[bool]]:
        verdicts = judge_by_rules(TextColumn.of(texts), config)
        kept = {}
        for family in ("gopher_repetition", "gopher_quality", "c4", "fineweb"):
            places = [place for place, rule in enumerate(verdicts.rules) if rule.name.startswith(f"{family}/")]
            kept[family] = (~verdicts.failed[places].any(axis=0)).tolist()
        return kept

    return Work(len(texts), _size(texts), run, judge, repeatable=True)


def tokenization(folder: Path) -> Work:
    """Each run begins without the pieces that the one before has seen."""
    texts = _column(folder, "texts.parquet")
    encoder = KernelEncoder((folder / "tokenizer.json").read_text())
    encoder.encode(pa.array(["warm up"]))

    def run() -> int:
        encoder.forget()
        return len(encoder.encode(texts).ids)

    return Work(len(texts), _size(texts), run, lambda tokens: {"tokens": tokens}, repeatable=True)


def whole(folder: Path) -> Work:
    """WARC to tokens through the lineage's own programs, artifacts written between them."""
    table, work = pq.read_table(folder / "articles.parquet"), Path(mkdtemp(dir=folder))
    raw = scratch.file(work / "raw", "warc/00000.warc.gz", folder / "articles.warc.gz")
    vocabulary = _tokenizer(work / "tokenizer", folder)
    _warm(folder)

    def run() -> int:
        extracted = scratch.build(extract_program, ExtractConfig(), work / "extracted", raw=raw)
        source = scratch.build(normalize, NormalizeConfig(), work / "normalized", extracted=extracted)
        scratch.build(label_language, LanguageConfig(), work / "language", normalized=source)
        judged = scratch.build(label_rules, RulesConfig(), work / "rules", normalized=source)
        signatures = scratch.build(minhash_program, DATATROVE_MINHASH, work / "minhash", normalized=source)
        scratch.build(fuzzy_duplicates, FuzzyDedupConfig(), work / "fuzzy", normalized={"bench": source}, minhash={"bench": signatures})
        scratch.build(tokenize, TokenizeConfig(), work / "tokens", normalized=source, tokenizer=vocabulary)
        return sum(sum(read_table(judged, name)["is_kept"].to_pylist()) for name in shard_names(judged))

    return Work(table.num_rows, _size(table["html"]), run, lambda kept: {"kept by the rules": kept})


def _tokenizer(directory: Path, folder: Path) -> Artifact:
    out = scratch.writer(directory)
    text = (folder / "tokenizer.json").read_text()
    with out.open("tokenizer.json") as stream:
        stream.write(text.encode())
    with out.open("token_bytes.npy") as stream:
        np.save(stream, token_bytes_of(Tokenizer.from_str(text)))
    return scratch.publish(directory, out, {})


def _warm(folder: Path) -> None:
    """Compile or load every kernel and model, as the peers' side loads its word tokenizer and models."""
    texts = _column(folder, "texts.parquet")[:8]
    label_texts(texts, LanguageConfig())
    judge_by_rules(TextColumn.of(texts), RulesConfig())
    Hasher(DATATROVE_MINHASH).buckets(TextColumn.of(texts))
    encoder_of((folder / "tokenizer.json").read_text(), TokenizeConfig()).encode(texts)
    html_extractor(ExtractConfig().html)("<p>warm up</p>")


STAGES: dict[str, Callable[[Path], Work]] = {
    stage.__name__: stage for stage in (warc, extract, language, exact, minhash, decontamination, rules, tokenization, whole)
}

if __name__ == "__main__":
    stage, folder = sys.argv[1:]
    report(lambda: STAGES[stage](Path(folder)))
