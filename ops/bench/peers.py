# mypy: ignore-errors
"""The peers' side of every stage. Runs in `.venv-peers`, where Seaway's dependencies are not installed.

.venv-peers/bin/python -m ops.bench.peers CANDIDATE STAGE FOLDER
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pyarrow.parquet as pq

from ops.bench.clock import Work, report
from ops.bench.judging import accuracy, extraction_f1, removal

TROVE = "datatrove"


def _quiet() -> None:
    from datatrove.utils.logging import logger

    logger.remove()


def _table(folder: Path, name: str) -> dict[str, list]:
    return pq.read_table(folder / name).to_pydict()


def _documents(texts: list[str], ids: list[str] | None = None) -> list:
    from datatrove.data import Document

    return [Document(text=text, id=name) for text, name in zip(texts, ids or map(str, range(len(texts))), strict=False)]


def _size(texts: list[str]) -> int:
    return sum(len(text.encode()) for text in texts)


def _warm_words() -> None:
    from datatrove.utils.word_tokenizers import load_word_tokenizer

    load_word_tokenizer("eng").word_tokenize("Warm up. It costs seconds.")


def warc(folder: Path) -> Work:
    import cchardet  # noqa: F401
    import magic  # noqa: F401
    from datatrove.pipeline.readers import WarcReader

    reader = WarcReader(str(folder), glob_pattern="pages.warc.gz")
    found = list(WarcReader(str(folder), glob_pattern="pages.warc.gz").run())
    return Work(
        len(found), _size([document.text for document in found]), lambda: sum(1 for _ in reader.run()), lambda count: {"records": count}
    )


def extract(folder: Path) -> Work:
    import trafilatura  # noqa: F401
    from datatrove.pipeline.extractors import Trafilatura

    table = _table(folder, "articles.parquet")
    extractor, documents = Trafilatura(timeout=60), _documents(table["html"])

    def run() -> dict[str, str]:
        return {document.id: document.text for document in extractor.run(iter(documents))}

    def judge(found: dict[str, str]) -> dict[str, float]:
        return extraction_f1([found.get(str(place), "") for place in range(len(documents))], table["wanted"])

    return Work(len(documents), _size(table["html"]), run, judge)


def _language_filter(folder: Path, **options):
    from datatrove.pipeline.filters import LanguageFilter
    from fasttext.FastText import _FastText

    found = LanguageFilter(**options)
    found.model._model = _FastText(str(folder / "lid.176.ftz"))  # its own, the unquantized one, is on a server
    return found


def language(folder: Path) -> Work:
    table = _table(folder, "languages.parquet")
    labels, documents = _language_filter(folder, label_only=True), _documents(table["text"])

    def run() -> list[str]:
        return [document.metadata["language"] for document in labels.run(iter(documents))]

    return Work(len(documents), _size(table["text"]), run, lambda found: accuracy(found, table["wanted"]))


def exact(folder: Path) -> Work:
    from datatrove.data import Document
    from datatrove.pipeline.dedup import ExactDedupConfig, ExactDedupFilter, ExactDedupSignature, ExactFindDedups
    from datatrove.pipeline.readers import ParquetReader

    def content(document: Document) -> str:
        return document.text

    table = _table(folder, "exact.parquet")
    config, scratch = ExactDedupConfig(content_getter=content), Path(mkdtemp(dir=folder))

    def read():
        return ParquetReader(str(folder), glob_pattern="exact.parquet").run()

    def run() -> set[str]:
        ExactDedupSignature(str(scratch / "signatures"), config).run(read())
        ExactFindDedups(str(scratch / "signatures"), str(scratch / "duplicates"), config).run()
        kept = {document.id for document in ExactDedupFilter(str(scratch / "duplicates"), config).run(read())}
        return set(table["id"]) - kept

    return Work(len(table["id"]), _size(table["text"]), run, lambda removed: {"removed": len(removed)})


def _near(scratch: Path, documents: list) -> set[str]:
    from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig

    config = MinhashConfig()
    MinhashDedupSignature(str(scratch / "signatures"), config).run(iter(documents))
    for bucket in range(config.num_buckets):
        MinhashDedupBuckets(str(scratch / "signatures"), str(scratch / "buckets"), config=config).run(None, bucket, config.num_buckets)
    MinhashDedupCluster(str(scratch / "buckets"), str(scratch / "removed"), config=config).run()
    kept = {document.id for document in MinhashDedupFilter(str(scratch / "removed")).run(iter(documents))}
    return {document.id for document in documents} - kept


def minhash(folder: Path) -> Work:
    table, copies = _table(folder, "copies.parquet"), json.loads((folder / "copies.json").read_text())
    documents, scratch = _documents(table["text"], table["id"]), Path(mkdtemp(dir=folder))
    _warm_words()
    return Work(
        len(documents), _size(table["text"]), lambda: _near(scratch, documents), lambda removed: _found(removed, table["id"], copies)
    )


def _found(removed: set[str], ids: list[str], copies: dict[str, list[str]]) -> dict[str, float]:
    return {**removal(removed, copies), "removed": len(removed)}


def decontamination(folder: Path) -> Work:
    from datatrove.pipeline.decont import NGramsDecontConfig, NGramsDecontFilter
    from datatrove.utils.text import ngrams, simplify_text

    table, evaluations = _table(folder, "texts.parquet"), json.loads((folder / "evaluations.json").read_text())
    config = NGramsDecontConfig(n_grams=13)
    guard, documents = NGramsDecontFilter(str(folder), config), _documents(table["text"], table["id"])

    def hashes(text: str) -> list[int]:
        words = guard.tokenizer.word_tokenize(simplify_text(text, config.norm_config))
        return [guard.hash_func(" ".join(words)) for words in ngrams(words, config.n_grams)]

    guard._index_hashes = {value: "bench" for text in evaluations["texts"] for value in hashes(text)}  # its indexer needs lighteval

    def run() -> set[str]:
        return {document.id for document in documents} - {document.id for document in guard.run(iter(documents))}

    return Work(len(documents), _size(table["text"]), run, lambda flagged: _recall(flagged, evaluations["documents"]))


def _recall(flagged: set[str], planted: list[str]) -> dict[str, float]:
    return {"recall": len(flagged & set(planted)) / len(planted), "flagged": len(flagged)}


def _rule_filters() -> dict[str, Callable]:
    from datatrove.pipeline.filters import C4QualityFilter, FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter

    return {
        "gopher_repetition": GopherRepetitionFilter(),
        "gopher_quality": GopherQualityFilter(),
        "c4": C4QualityFilter(),
        "fineweb": FineWebQualityFilter(),
    }


def rules(folder: Path) -> Work:
    """Every filter judges every document. One document after another, so that datatrove's cache of words spares it three of five."""
    from datatrove.data import Document

    table = _table(folder, "texts.parquet")
    filters = _rule_filters()
    _warm_words()

    def run() -> dict[str, list[bool]]:
        found = {name: [] for name in filters}
        for text in table["text"]:
            for name, one in filters.items():
                found[name].append(one.filter(Document(text=text, id="")) is True)
        return found

    def judge(found: dict[str, list[bool]]) -> dict[str, float]:
        (folder / "verdicts.json").write_text(json.dumps(found))
        return {f"{name} kept": sum(kept) for name, kept in found.items()}

    return Work(len(table["text"]), _size(table["text"]), run, judge)


def tokenization(folder: Path) -> Work:
    from datatrove.pipeline.tokens import DocumentTokenizer

    table = _table(folder, "texts.parquet")
    documents, scratch = _documents(table["text"], table["id"]), mkdtemp(dir=folder)
    step = DocumentTokenizer(scratch, str(folder / "tokenizer.json"), shuffle_documents=False, batch_size=1_000)
    step.tokenizer.encode("warm up")

    def run() -> int:
        step.run(iter(documents))
        return step.stats["tokens"].total

    return Work(len(documents), _size(table["text"]), run, lambda tokens: {"tokens": tokens})


def whole(folder: Path) -> Work:
    """WARC to tokens as FineWeb's example does it: read, extract, language, rules, MinHash, tokens; JSON lines in between."""
    from datatrove.pipeline.extractors import Trafilatura
    from datatrove.pipeline.readers import JsonlReader, WarcReader
    from datatrove.pipeline.tokens import DocumentTokenizer
    from datatrove.pipeline.writers import JsonlWriter

    table, scratch = _table(folder, "articles.parquet"), Path(mkdtemp(dir=folder))
    tokens = DocumentTokenizer(str(scratch / "tokens"), str(folder / "tokenizer.json"), shuffle_documents=False)
    steps = [
        Trafilatura(timeout=60),
        _language_filter(folder, languages=None, label_only=True),
        *_rule_filters().values(),
        JsonlWriter(str(scratch / "kept")),
    ]
    _warm_words()

    def run() -> int:
        data = WarcReader(str(folder), glob_pattern="articles.warc.gz").run()
        for step in steps:
            data = step.run(data)
        kept = sum(1 for _ in data)
        if kept:
            documents = list(JsonlReader(str(scratch / "kept")).run())
            removed = _near(scratch, documents)
            tokens.run(document for document in documents if document.id not in removed)
        return kept

    return Work(len(table["html"]), _size(table["html"]), run, lambda kept: {"kept by the rules": kept})


def rensa(folder: Path) -> Work:
    """MinHash in Rust: word 5-grams, 14 bands of 8 rows, like datatrove's defaults."""
    from rensa import RMinHash, RMinHashLSH

    table, copies = _table(folder, "copies.parquet"), json.loads((folder / "copies.json").read_text())

    def run() -> set[str]:
        index, removed = RMinHashLSH(threshold=0.7, num_perm=112, num_bands=14), set()
        for place, text in enumerate(table["text"]):
            words = text.lower().split()
            signature = RMinHash(num_perm=112, seed=1)
            signature.update([" ".join(shingle) for shingle in zip(*(words[i:] for i in range(5)), strict=False)])
            if any(index.query(signature)):
                removed.add(table["id"][place])
            index.insert(place, signature)
        return removed

    return Work(len(table["id"]), _size(table["text"]), run, lambda removed: _found(removed, table["id"], copies))


CANDIDATES = {
    (TROVE, stage.__name__): stage for stage in (warc, extract, language, exact, minhash, decontamination, rules, tokenization, whole)
} | {("rensa", "minhash"): rensa}

if __name__ == "__main__":
    candidate, stage, folder = sys.argv[1:]
    if candidate == TROVE:
        _quiet()
    report(lambda: CANDIDATES[candidate, stage](Path(folder)))
