"""A profile: everything that a lineage is run with, in one YAML file - sources, sizes, backend, storage.

Loading one imports nothing heavy and refuses what it does not know, so a typing error ends here and not
in hour three of a run.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from assets.profile_file import ProfileError, merged, read_profile
from infra.artifacts.config import ProgramConfig
from infra.dispatch.budgets import Budgets
from infra.dispatch.engines.choice import EngineConfig, LocalConfig, refusal
from infra.dispatch.environment import JAX_ON_CPU, SHARED_PROGRAMS_VARIABLE
from infra.dispatch.job import Resources, Timeouts
from model.config import BranchConfig, EvaluateConfig, PredictionConfig, ReleaseConfig, ScalingConfig, TrainConfig
from ops.config import (
    ClusterStoreConfig,
    CompareTokenizersConfig,
    MixtureConfig,
    NgramConfig,
    NormalizeConfig,
    PruneTokenizerConfig,
    StoreConfig,
    TokenizeConfig,
    TokenizerConfig,
    TokenizeRestConfig,
)
from ops.crawl.config import SourceSpec
from ops.decontaminate.config import ContaminationConfig, EvaluationNgramsConfig
from ops.dedup.config import ExactDedupConfig, FuzzyDedupConfig, MinhashConfig, ParagraphDedupConfig
from ops.evaluation.config import TaskItemsConfig, TaskScoresConfig
from ops.evaluation.perplexity.config import PerplexityConfig, PerplexityGapConfig
from ops.extract.config import ExtractConfig
from ops.label.config import (
    AssignConfig,
    ClusterConfig,
    EmbedConfig,
    EmbedderConfig,
    GradeConfig,
    LanguageConfig,
    QualityConfig,
    QualityModelConfig,
    ScoreConfig,
)
from ops.report.config import AttritionConfig

Pool = Literal["host", "accelerator"]

KEY = re.compile(r"(?!.*\.\.)[a-z0-9][a-z0-9._-]*")  # commas, bars and dots in a row mean something to Dagster's partition selections


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Storage(_Section):
    """Where things lie. `root` may be any fsspec URL with a conditional create; the rest is of this machine."""

    root: str
    state: str
    dagster_home: str
    catalog: str  # SQLAlchemy URL
    dagster: str | None = None  # PostgreSQL URL of Dagster's runs, events and schedules; by default SQLite in `dagster_home`
    compiled: str  # programs that XLA compiled, on each host; may be deleted at any time
    compiled_shared: str | None = None  # where hosts find what others compiled: any URL; None for nowhere

    @field_validator("root", "state", "dagster_home", "compiled", mode="after")
    @classmethod
    def _is_absolute(cls, location: str) -> str:
        return location if "://" in location else str(Path(location).absolute())

    @field_validator("dagster", mode="after")
    @classmethod
    def _is_postgresql(cls, url: str | None) -> str | None:
        """Dagster's package speaks through psycopg2; for SQLAlchemy a URL without driver means psycopg 3."""
        if url is None or not url:
            return None
        backend, found, rest = url.partition("://")
        if not found or backend not in ("postgresql", "postgresql+psycopg2"):
            raise ValueError("write postgresql://user@host:port/database, or leave it out to keep Dagster's records in its home")
        return f"postgresql+psycopg2://{rest}"


class Programs(_Section):
    """One section per asset; what is left out has the program's own default."""

    extracted: ExtractConfig = ExtractConfig()
    normalized: NormalizeConfig = NormalizeConfig()
    language: LanguageConfig = LanguageConfig()
    quality: QualityConfig = QualityConfig()
    quality_grades: GradeConfig = GradeConfig()
    quality_model: QualityModelConfig = QualityModelConfig()
    learned_quality: ScoreConfig = ScoreConfig()
    embedder: EmbedderConfig = EmbedderConfig()
    embeddings: EmbedConfig = EmbedConfig()
    clusters: ClusterConfig = ClusterConfig()
    cluster_assignments: AssignConfig = AssignConfig()
    evaluation_ngrams: EvaluationNgramsConfig = EvaluationNgramsConfig()
    contamination: ContaminationConfig = ContaminationConfig()
    minhash: MinhashConfig = MinhashConfig()
    exact_duplicates: ExactDedupConfig = ExactDedupConfig()
    fuzzy_duplicates: FuzzyDedupConfig = FuzzyDedupConfig()
    paragraph_duplicates: ParagraphDedupConfig = ParagraphDedupConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    tokenizer_comparison: CompareTokenizersConfig = CompareTokenizersConfig()
    tokens: TokenizeConfig = TokenizeConfig()
    store: StoreConfig = StoreConfig()
    attrition: AttritionConfig = AttritionConfig()
    mixture: MixtureConfig = MixtureConfig()
    baselines: NgramConfig = NgramConfig()
    scaling_law: ScalingConfig = ScalingConfig()
    prediction: Mapping[str, Any] = {}  # a PredictionConfig whose run is the hero
    hero: TrainConfig
    cooldown: BranchConfig
    evaluation: EvaluateConfig = EvaluateConfig()
    perplexity: PerplexityConfig = PerplexityConfig()
    perplexity_gap: PerplexityGapConfig = PerplexityGapConfig()
    task_items: TaskItemsConfig = TaskItemsConfig()
    task_scores: TaskScoresConfig = TaskScoresConfig()
    release: ReleaseConfig


ASSETS = frozenset({"raw", "ladder", "repeat", "repeat_perplexity", "pruned_tokenizer", *Programs.model_fields})
"""Every asset: what `sources`, `ladder` and `vocabularies` configure, and one per section of `programs`."""


class StageSettings(_Section):
    """What one asset has otherwise than its pool and the profile: only the fields that are written here count."""

    resources: Resources = Resources()
    timeouts: Timeouts = Timeouts()
    budgets: Budgets = Budgets()

    @property
    def has_device(self) -> bool:
        return "device" in self.resources.model_fields_set


class Concurrency(_Section):
    """How much may go on at once. A run only waits for its job, so it costs some 60 MiB and no core."""

    runs: int = Field(default=2, ge=1, description="runs of Dagster's queue")
    # One by default: jobs of a run go one after another, and runs of their own build as many partitions at once as `runs` allows.
    partitions: int = Field(default=1, ge=1, le=1000, description="of a backfill, in one run, of assets off the accelerators")
    pools: dict[Pool, int] = Field(default_factory=dict, description="jobs of a pool, over all runs; no limit for a pool left out")

    def partitions_of(self, pool: Pool) -> int:
        """How many partitions of a backfill share a run: one where each takes a chip."""
        return 1 if pool == "accelerator" else self.partitions

    @field_validator("pools", mode="after")
    @classmethod
    def _at_least_one(cls, pools: dict[Pool, int]) -> dict[Pool, int]:
        if idle := sorted(pool for pool, slots in pools.items() if slots < 1):
            raise ValueError(f"pool {idle[0]} has no slot, so nothing of it would ever run; give it at least 1")
        return pools


class Repeats(_Section):
    """One cell of the ladder again: what its runs differ by is the noise of every number that is compared."""

    cell: str
    seeds: tuple[int, ...] = Field(min_length=2, description="of parameters and of the order of the data")

    @property
    def keys(self) -> tuple[str, ...]:
        """Partition keys of the repetitions."""
        return tuple(f"{self.cell}.seed{seed}" for seed in self.seeds)

    @field_validator("seeds", mode="after")
    @classmethod
    def _seeds_differ(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds = {list(seeds)} names one twice; a run does not differ from itself")
        return seeds


class Profile(_Section):
    """A lineage's whole configuration.

    `ladder` holds, per cell, what differs from the hero's config, so that a cell is the hero in small. `vocabularies` are what
    the trained tokenizer is pruned to; one that is no smaller is the trained one. `quality_scores` names the asset whose
    scores the store puts documents into buckets by; `repeated_paragraphs` says whether tokens are of them too; `domain_clusters` has
    the finest view of at most so many clusters for domains, instead of what the sources say.
    """

    name: str
    storage: Storage
    backend: EngineConfig = LocalConfig()
    sources: dict[str, SourceSpec] = Field(min_length=1)
    programs: Programs
    ladder: dict[str, dict[str, Any]] = Field(min_length=1)
    repeats: Repeats | None = None
    vocabularies: dict[str, PruneTokenizerConfig] = Field(
        {f"v{size}": PruneTokenizerConfig(vocab_size=size) for size in (16_384, 32_768, 65_536)}, min_length=1
    )
    quality_scores: Literal["quality", "learned_quality"] = "quality"
    repeated_paragraphs: Literal["keep", "cut"] = "keep"
    domain_clusters: int | None = Field(default=None, ge=1)
    pools: dict[Pool, Resources] = Field(default_factory=dict)
    stages: dict[str, StageSettings] = Field(default_factory=dict)
    budgets: Budgets = Budgets()
    timeouts: Timeouts = Timeouts()
    concurrency: Concurrency = Concurrency()

    @field_validator("backend", mode="before")
    @classmethod
    def _kind_of_a_word(cls, backend: Any) -> Any:
        return {"kind": backend} if isinstance(backend, str) else backend

    @field_validator("stages", mode="after")
    @classmethod
    def _stages_exist(cls, stages: dict[str, StageSettings]) -> dict[str, StageSettings]:
        if unknown := sorted(stages.keys() - ASSETS):
            raise ValueError(f"there is no asset {unknown[0]!r}; choose among {', '.join(sorted(ASSETS))}")
        return stages

    @model_validator(mode="after")
    def _devices_can_be_placed(self) -> "Profile":
        where: list[tuple[str, Resources]] = [(f"pools.{pool}", self.pools[pool]) for pool in sorted(self.pools)]
        where += [
            (f"stages.{asset}.resources", self.resources_of(asset, "host")) for asset, own in sorted(self.stages.items()) if own.has_device
        ]
        for place, resources in where:
            if why := refusal(self.backend, resources):
                raise ValueError(f"{place}.device: {why}")
        return self

    @model_validator(mode="after")
    def _keys_are_partition_keys(self) -> "Profile":
        for key in (*self.sources, *self.ladder, *self.vocabularies):
            if not KEY.fullmatch(key):
                raise ValueError(f"{key!r} can't be a partition key; use lower-case letters, digits, '_', '-' and single '.'")
        return self

    @model_validator(mode="after")
    def _merged_configs_are_valid(self) -> "Profile":
        for cell in self.ladder:
            _require_valid(f"ladder.{cell}", lambda cell=cell: self.cell_config(cell))  # type: ignore[misc]
        _require_valid("programs.prediction", self.prediction_config)
        if self.repeats is not None:
            if self.repeats.cell not in self.ladder:
                raise ValueError(
                    f"repeats.cell: the ladder has no cell {self.repeats.cell!r}; choose one of {', '.join(sorted(self.ladder))}"
                )
            for key in self.repeats.keys:
                _require_valid(f"repeats.{key}", lambda key=key: self.repeat_config(key))  # type: ignore[misc]
        return self

    def program_config(self, asset: str) -> ProgramConfig:
        config = getattr(self.programs, asset)
        assert isinstance(config, ProgramConfig)
        return config

    def tokens_config(self, source: str) -> TokenizeConfig:
        """A source's tokens, of whole documents or of what is left of them."""
        if self.repeated_paragraphs == "keep":
            return self.programs.tokens
        return TokenizeRestConfig.model_validate({**self.programs.tokens.model_dump(), "source": source})

    def store_config(self) -> StoreConfig:
        """Which domain a source belongs to is said once, by the source; where clusters are the domains, by nobody."""
        if self.domain_clusters is not None:
            return ClusterStoreConfig.model_validate({**self.programs.store.model_dump(), "domain_clusters": self.domain_clusters})
        return self.programs.store.model_copy(update={"domains": {key: spec.domain for key, spec in sorted(self.sources.items())}})

    def prediction_config(self) -> PredictionConfig:
        return PredictionConfig.model_validate({**self.programs.prediction, "run": self.programs.hero})

    def release_config(self) -> ReleaseConfig:
        """Licences are said once, by the sources."""
        licences = {key: spec.licence for key, spec in sorted(self.sources.items())}
        return self.programs.release.model_copy(update={"source_licences": licences})

    def cell_config(self, cell: str) -> TrainConfig:
        """The hero's config with the cell's overrides merged in, field by field."""
        return TrainConfig.model_validate(merged(self.programs.hero.model_dump(), self.ladder[cell]))

    def repeat_config(self, key: str) -> TrainConfig:
        """The repeated cell's config under the seed that a partition key names."""
        assert self.repeats is not None
        seed = self.repeats.seeds[self.repeats.keys.index(key)]
        overrides = merged(self.ladder[self.repeats.cell], {"seed": seed, "loader": {"seed": seed}})
        return TrainConfig.model_validate(merged(self.programs.hero.model_dump(), overrides))

    def resources_of(self, asset: str, pool: Pool) -> Resources:
        """What an asset's jobs run on: its pool's resources, and over them its own. What a training job compiles is kept."""
        resources = _with(self.pools.get(pool, Resources()), self._settings(asset).resources)
        if pool != "accelerator":
            return resources
        cache = {"JAX_COMPILATION_CACHE_DIR": self.storage.compiled}
        if self.storage.compiled_shared:
            cache[SHARED_PROGRAMS_VARIABLE] = self.storage.compiled_shared
        on_cpu = {**JAX_ON_CPU, "JAX_PLATFORMS": "cpu"} if resources.target.kind == "cpu" else {}
        return resources.model_copy(update={"env": {**cache, **on_cpu, **resources.env}})

    def timeouts_of(self, asset: str) -> Timeouts:
        """The profile's clocks, and over them the asset's own."""
        return _with(self.timeouts, self._settings(asset).timeouts)

    def budgets_of(self, asset: str) -> Budgets:
        """The profile's budgets, and over them the asset's own."""
        return _with(self.budgets, self._settings(asset).budgets)

    def _settings(self, asset: str) -> StageSettings:
        return self.stages.get(asset, StageSettings())

    @property
    def live_sources(self) -> tuple[str, ...]:
        """Sources whose world moves without a file of ours changing."""
        return tuple(sorted(key for key, spec in self.sources.items() if spec.kind == "pydoc"))


def active_profile() -> Profile:
    """The profile this process works on: `$SEAWAY_PROFILE`, else `demo`."""
    return load_profile(os.environ.get("SEAWAY_PROFILE", "demo"))


def load_profile(name: str) -> Profile:
    """Load a built-in profile by name, or any by path (a name with a slash or ending in .yaml).

    Raises:
        ProfileError: no such profile, not YAML, an unknown key, a value out of range, a device that its backend can never place.
    """
    file = read_profile(name)
    try:
        return Profile.model_validate(file.values)
    except ValidationError as error:
        raise ProfileError(f"{file.path}: {'; '.join(_sentence(dict(item)) for item in error.errors())}") from None


def _with[Model: BaseModel](base: Model, own: Model) -> Model:
    """`base` with what is written in `own`, field by field; its defaults say nothing."""
    written = own.model_dump(exclude_unset=True)
    return type(base).model_validate(merged(base.model_dump(), written)) if written else base


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
    if problem["type"] == "union_tag_invalid":
        known = ", ".join(sorted(tag.strip("'") for tag in problem["ctx"]["expected_tags"].split(", ")))
        return f"{where}: {problem['ctx']['tag']!r} is unknown; choose one of {known}"
    what = f"{where}: {problem['msg'].removeprefix('Value error, ')}".removeprefix(": ")
    return what if isinstance(problem["input"], Mapping | BaseModel) else f"{what} (found {str(problem['input'])[:80]!r})"
