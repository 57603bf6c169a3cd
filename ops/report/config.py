"""What reports show. Imports nothing heavy."""

from pydantic import Field

from infra.artifacts.config import ProgramConfig


class AttritionConfig(ProgramConfig):
    """How much of what was kept and what was removed is shown to people."""

    samples_per_outcome: int = Field(3, ge=1)  # documents a source and outcome, the smallest ids: a fair draw, and always the same one
    excerpt_chars: int = Field(700, ge=80)  # of each text, around what decided about it
