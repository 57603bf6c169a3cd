"""A profile: everything that a lineage is run with, in one YAML file - sources, sizes, backend, storage.

Loading one imports nothing heavy and refuses what it does not know, so a typing error ends here and not
in hour three of a run.
"""

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from infra.artifacts.config import ProgramConfig
from infra.dispatch.budgets import Budgets
from infra.dispatch.environment import JAX_ON_CPU
from infra.dispatch.job import Resources, Timeouts
from model.config import BranchConfig, EvaluateConfig, PredictionConfig, ReleaseConfig, ScalingConfig, TrainConfig
from ops.config import (
    ContaminationConfig,
    EvaluationNgramsConfig,
    ExactDedupConfig,
    ExtractConfig,
    FuzzyDedupConfig,
    LanguageConfig,
    MinhashConfig,
    MixtureConfig,
    NgramConfig,
    NormalizeConfig,
    QualityConfig,
    SourceSpec,
    StoreConfig,
    TokenizeConfig,
    TokenizerConfig,
)

Pool = Literal["host", "accelerator"]

KEY = re.compile(r"(?!.*\.\.)[a-z0-9][a-z0-9._-]*")  # commas, bars and dots in a row mean something to Dagster's partition selections
VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_][A-Z0-9_]*)(:-(?P<default>[^}]*))?\}")  # `${stdlib}` and the like are a source's own


class ProfileError(ValueError):
    """A profile can't be used as it is; the message says which file, which field, and what to do."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Storage(_Section):
    """Where things lie. `root` may be any fsspec URL with a conditional create; the rest is of this machine."""

    root: str
    state: str
    dagster_home: str
    catalog: str  # SQLAlchemy URL
    compiled: str  # programs that XLA compiled; may be deleted at any time

    @field_validator("root", "state", "dagster_home", "compiled", mode="after")
    @classmethod
    def _is_absolute(cls, location: str) -> str:
        return location if "://" in location else str(Path(location).absolute())


class Programs(_Section):
    """One section per asset; what is left out has the program's own default."""

    extracted: ExtractConfig = ExtractConfig()
    normalized: NormalizeConfig = NormalizeConfig()
    language: LanguageConfig = LanguageConfig()
    quality: QualityConfig = QualityConfig()
    evaluation_ngrams: EvaluationNgramsConfig = EvaluationNgramsConfig()
    contamination: ContaminationConfig = ContaminationConfig()
    minhash: MinhashConfig = MinhashConfig()
    exact_duplicates: ExactDedupConfig = ExactDedupConfig()
    fuzzy_duplicates: FuzzyDedupConfig = FuzzyDedupConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    tokens: TokenizeConfig = TokenizeConfig()
    store: StoreConfig = StoreConfig()
    mixture: MixtureConfig = MixtureConfig()
    baselines: NgramConfig = NgramConfig()
    scaling_law: ScalingConfig = ScalingConfig()
    prediction: Mapping[str, Any] = {}  # a PredictionConfig whose run is the hero
    hero: TrainConfig
    cooldown: BranchConfig
    evaluation: EvaluateConfig = EvaluateConfig()
    release: ReleaseConfig


class Profile(_Section):
    """A lineage's whole configuration.

    `ladder` holds, per cell, what differs from the hero's config, so that a cell is the hero in small.
    """

    name: str
    storage: Storage
    backend: Literal["local"] = "local"
    sources: dict[str, SourceSpec] = Field(min_length=1)
    programs: Programs
    ladder: dict[str, dict[str, Any]] = Field(min_length=1)
    pools: dict[Pool, Resources] = Field(default_factory=dict)
    budgets: Budgets = Budgets()
    timeouts: Timeouts = Timeouts()

    @model_validator(mode="after")
    def _keys_are_partition_keys(self) -> "Profile":
        for key in (*self.sources, *self.ladder):
            if not KEY.fullmatch(key):
                raise ValueError(f"{key!r} can't be a partition key; use lower-case letters, digits, '_', '-' and single '.'")
        return self

    @model_validator(mode="after")
    def _merged_configs_are_valid(self) -> "Profile":
        for cell in self.ladder:
            _require_valid(f"ladder.{cell}", lambda cell=cell: self.cell_config(cell))  # type: ignore[misc]
        _require_valid("programs.prediction", self.prediction_config)
        return self

    def program_config(self, asset: str) -> ProgramConfig:
        config = getattr(self.programs, asset)
        assert isinstance(config, ProgramConfig)
        return config

    def store_config(self) -> StoreConfig:
        """Which domain a source belongs to is said once, by the source."""
        return self.programs.store.model_copy(update={"domains": {key: spec.domain for key, spec in sorted(self.sources.items())}})

    def prediction_config(self) -> PredictionConfig:
        return PredictionConfig.model_validate({**self.programs.prediction, "run": self.programs.hero})

    def release_config(self) -> ReleaseConfig:
        """Licences are said once, by the sources."""
        licences = {key: spec.licence for key, spec in sorted(self.sources.items())}
        return self.programs.release.model_copy(update={"source_licences": licences})

    def cell_config(self, cell: str) -> TrainConfig:
        """The hero's config with the cell's overrides merged in, field by field."""
        return TrainConfig.model_validate(_merged(self.programs.hero.model_dump(), self.ladder[cell]))

    def resources_of(self, pool: Pool) -> Resources:
        """What a pool's jobs run on. Training jobs keep what they compiled, and on a CPU also their memory."""
        resources = self.pools.get(pool, Resources())
        if pool != "accelerator":
            return resources
        on_cpu = {**JAX_ON_CPU, "JAX_PLATFORMS": "cpu"} if resources.target.kind == "cpu" else {}
        return resources.model_copy(update={"env": {"JAX_COMPILATION_CACHE_DIR": self.storage.compiled, **on_cpu, **resources.env}})

    @property
    def live_sources(self) -> tuple[str, ...]:
        """Sources whose world moves without a file of ours changing."""
        return tuple(sorted(key for key, spec in self.sources.items() if spec.kind == "pydoc"))


def active_profile() -> Profile:
    """The profile this process works on: `$SEAWAY_PROFILE`, else `demo`."""
    return load_profile(os.environ.get("SEAWAY_PROFILE", "demo"))


def load_profile(name: str) -> Profile:
    """Load a built-in profile by name, or any by path (a name with a slash or ending in .yaml).

    `${NAME}` and `${NAME:-default}` in its strings are taken from the environment; as in a shell, the default also
    stands in for an empty value.

    Raises:
        ProfileError: no such profile, not YAML, an unknown key, a value out of range.
    """
    path = Path(name) if "/" in name or name.endswith((".yaml", ".yml")) else _built_in(name)
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        raise ProfileError(f"{path}: not text in UTF-8") from None
    except OSError as error:
        raise ProfileError(f"profile {name!r}: can't read {path}: {error.strerror}; built in are {', '.join(_built_in_names())}") from None
    try:
        return Profile.model_validate(_substituted(yaml.safe_load(text), path))
    except yaml.YAMLError as error:
        raise ProfileError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise ProfileError(f"{path}: {'; '.join(_sentence(dict(item)) for item in error.errors())}") from None


def _built_in(name: str) -> Path:
    return Path(str(files("orchestration.profiles").joinpath(f"{name}.yaml")))


def _built_in_names() -> list[str]:
    return sorted(path.stem for path in _built_in("demo").parent.glob("*.yaml"))


def _substituted(value: Any, path: Path) -> Any:
    """The value with variables replaced in every string, and so not in comments."""
    if isinstance(value, Mapping):
        return {key: _substituted(item, path) for key, item in value.items()}
    if isinstance(value, list):
        return [_substituted(item, path) for item in value]
    return VARIABLE.sub(partial(_variable, path), value) if isinstance(value, str) else value


def _variable(path: Path, match: re.Match[str]) -> str:
    found = os.environ.get(match["name"])
    if not found and match["default"] is not None:
        return match["default"]
    if found is None:
        raise ProfileError(f"{path}: ${{{match['name']}}} is not set; export {match['name']}, or write ${{{match['name']}:-default}}")
    return found


def _require_valid(where: str, build: Callable[[], BaseModel]) -> None:
    """Build a config that is merged from two places; what is wrong with it is told as if it stood at `where`."""
    try:
        build()
    except ValidationError as error:
        problems = ({**item, "loc": (where, *item["loc"])} for item in error.errors())
        raise ValueError("; ".join(_sentence(dict(problem)) for problem in problems)) from None


def _sentence(problem: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{where}: unknown key; check its spelling or remove it"
    what = f"{where}: {problem['msg'].removeprefix('Value error, ')}".removeprefix(": ")
    return what if isinstance(problem["input"], Mapping | BaseModel) else f"{what} (found {str(problem['input'])[:80]!r})"


def _merged(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in overrides.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return merged
