"""The published rules' thresholds. None switches a rule off. Defaults are those of the papers."""

from pydantic import Field

from infra.artifacts.config import ProgramConfig, execution_only
from ops.dataflow.config import Execution


class GopherQualityConfig(ProgramConfig):
    """Rae et al. 2021 (arXiv 2112.11446), appendix A.1.1."""

    min_words: int | None = Field(50, ge=0)  # words of nothing but symbols do not count
    max_words: int | None = Field(100_000, ge=0)
    min_mean_word_chars: float | None = 3.0
    max_mean_word_chars: float | None = 10.0
    max_hashes_per_word: float | None = 0.1
    max_ellipses_per_word: float | None = 0.1
    max_bullet_line_share: float | None = 0.9
    max_ellipsis_line_share: float | None = 0.3
    min_alpha_word_share: float | None = 0.8
    min_stop_words: int | None = 2


class GopherRepetitionConfig(ProgramConfig):
    """Rae et al. 2021, table A1: shares of characters unless they say otherwise."""

    max_repeated_paragraph_share: float | None = 0.30  # of paragraphs
    max_repeated_paragraph_char_share: float | None = 0.20
    max_repeated_line_share: float | None = 0.30  # of lines
    max_repeated_line_char_share: float | None = 0.20
    max_top_ngram_shares: tuple[float | None, float | None, float | None] = (0.20, 0.18, 0.16)  # 2, 3 and 4 words
    max_repeated_ngram_shares: tuple[float | None, ...] = Field((0.15, 0.14, 0.13, 0.12, 0.11, 0.10), min_length=6, max_length=6)  # 5 to 10


class WordList(ProgramConfig):
    """A file of UTF-8 with one word or phrase a line. What it says is identity, by its hash; where it lies is not."""

    path: str = execution_only(min_length=1)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class C4Config(ProgramConfig):
    """Raffel et al. 2020 (JMLR 21, 140), section 2.2.

    Lines are judged one by one, and sentences counted in those that are kept; "lorem ipsum" or a curly bracket in a line
    that would be kept drops the document. So does any word of a list of bad ones, anywhere in the text, where a list is named: the
    paper took the "List of Dirty, Naughty, Obscene or Otherwise Bad Words", which is nobody's to ship. It knows no language: name
    one for a source that is in the list's own.
    """

    min_sentences: int | None = 5
    line_needs_end: bool = True  # a terminal mark or quotation mark at its end; FineWeb switched it off
    min_line_words: int = Field(3, ge=0)
    max_word_chars: int = Field(1_000, ge=1)
    bad_words: WordList | None = None


class FineWebConfig(ProgramConfig):
    """Penedo et al. 2024 (arXiv 2406.17557), section 3.6."""

    min_ended_line_share: float | None = 0.12
    short_line_chars: int = Field(30, ge=0)
    max_short_line_share: float | None = 0.67
    max_repeated_line_char_share: float | None = 0.01
    max_newlines_per_word: float | None = 0.3


class RulesConfig(ProgramConfig):
    """The four families. Each judges the same, whole text: none sees what another would cut out of it."""

    gopher_quality: GopherQualityConfig | None = GopherQualityConfig()
    gopher_repetition: GopherRepetitionConfig | None = GopherRepetitionConfig()
    c4: C4Config | None = C4Config()
    fineweb: FineWebConfig | None = FineWebConfig()
    max_chars: int = Field(1_000_000, ge=1)  # read from the beginning of a text; bounds memory
    batch_rows: int = execution_only(2_048, ge=1)
    execution: Execution = execution_only(Execution())
