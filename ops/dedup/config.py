"""What counts as the same, and when removal is alarming. Imports nothing heavy."""

from typing import Literal

from pydantic import Field

from infra.artifacts.config import ProgramConfig, execution_only
from ops.dataflow.config import Execution
from ops.units import MiB


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
    memory_bytes: int = execution_only(1024 * MiB, ge=256 * MiB)  # of the process: batches of texts are sized by it
    batch_rows: int = execution_only(2_048, ge=1)
