"""What the board shows of a profile: evaluation records and samples from their archives, predictions by the catalog.

Each evaluation has an archive of its own (ops/evaluation/records.py); one that is sealed never changes, so it is read once.
"""

from collections import defaultdict
from collections.abc import Sequence
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from infra.archive.archive import Archive
from infra.archive.errors import ArchiveError, ArchiveNotFoundError
from infra.archive.snapshot import Snapshot
from infra.artifacts.artifact import Artifact
from infra.catalog.catalog import Catalog
from infra.catalog.engine import CatalogError
from infra.catalog.records import CatalogArtifact
from infra.dash.paging import page_of, rows_of
from infra.dash.results import Estimate, Key, Page, Prediction, Result, Sample, Unavailable, Verdict
from infra.storage.errors import StorageError
from infra.storage.objects import list_names
from ops.evaluation import statistics
from ops.evaluation.records import FOLDER, EvaluationRecord, archive_of, records_in
from ops.evaluation.samples import SAMPLES
from ops.evaluation.statistics import Tally
from orchestration.dash_rows import result_of, sample_of, shown_estimate

LISTED = ("kind", "choices", "model_choice", "gold_choice", "extracted", "grading")  # columns of a line in a list of samples
NOTHING_TAKEN = ("", "[invalid]")  # what a filter gives that found no answer


class ArchivedResults:
    """A source for `infra.dash`.

    Args:
        root: of the profile's storage.
        catalog: its SQLAlchemy URL.
    """

    def __init__(self, root: str, catalog: str) -> None:
        self._root, self._catalog_url = root, catalog
        self._sealed: dict[str, tuple[list[EvaluationRecord], bool]] = {}
        self._lock = Lock()

    def results(self) -> Sequence[Result]:
        """One for each record. A benchmark of which only some items were asked has a name of its own."""
        with self._lock:
            found = [(record, blank) for run in self._runs() for record, blank in self._records(run)]
        digests: dict[str, set[str]] = defaultdict(set)
        for record, _ in found:
            digests[record.model["name"]].add(record.model["digest"])
        return [result_of(record, blank, several=len(digests[record.model["name"]]) > 1) for record, blank in found]

    def page(self, result: Result, *, after: Key | None, limit: int, verdict: Verdict | None) -> Page:
        """Samples by key."""
        snapshot = self._snapshot(result)
        try:
            rows, has_more = page_of(
                snapshot, SAMPLES.name, LISTED, after=after, limit=limit, wanted=lambda batch: _has(batch, verdict), judged_by=("grading",)
            )
        except (ArchiveError, StorageError) as error:
            raise Unavailable(f"The samples of {result.run} can't be read: {error}") from error
        return Page([sample_of(row) for row in rows], has_more)

    def sample(self, result: Result, key: Key) -> Sample | None:
        """One sample."""
        snapshot = self._snapshot(result)
        try:
            rows = rows_of(snapshot, SAMPLES.name, snapshot.schema(SAMPLES.name).names, [key])
        except (ArchiveError, StorageError) as error:
            raise Unavailable(f"The samples of {result.run} can't be read: {error}") from error
        return sample_of(rows[0]) if rows else None

    def trajectory(self, result: Result, uri: str, limit: int) -> str:
        """Of the run's own archive: `Archive.open` refuses every other place. Bytes that are no UTF-8 are shown by their numbers."""
        try:
            with Archive(self._snapshot(result).url).open(uri) as stream:
                return stream.read(limit).decode("utf-8", errors="backslashreplace")
        except (ArchiveError, StorageError, OSError, ValueError) as error:
            raise Unavailable(f"{uri} can't be read: {error}") from error

    def mean(self, results: Sequence[Result | None]) -> Estimate:
        """Over a panel whose missing evaluations are bounded."""
        panel = [str(place) for place in range(len(results))]
        tallies = {
            name: Tally(result.attempted, result.scored, result.correct)
            for name, result in zip(panel, results, strict=True)
            if result is not None and result.estimate is not None
        }
        return shown_estimate(statistics.aggregate(panel, tallies, "bound"))

    def predictions(self) -> Sequence[Prediction]:
        """The lineage's: each registered value, and what the checkpoints measured against it."""
        try:
            with Catalog.open(self._catalog_url) as catalog:
                evaluations = _newest(catalog.by_asset("evaluation"))
                registered = catalog.by_asset("prediction")
                measured = [_measured(catalog, one) for one in evaluations]
        except (CatalogError, StorageError, OSError, KeyError, ValueError) as error:
            raise Unavailable(f"Predictions can't be read: {error}. `seaway catalog rebuild` makes the catalog anew.") from error
        met = {digest for _, digest in measured}
        waiting = [_waiting(one) for one in registered if one.digest not in met]
        return [*(prediction for prediction, _ in measured), *waiting]

    def _runs(self) -> Sequence[str]:
        try:
            return list_names(f"{archive_of(self._root, '')}".rstrip("/"))
        except (StorageError, OSError) as error:
            raise Unavailable(f"{self._root}/{FOLDER} can't be listed: {error}") from error

    def _records(self, run: str) -> list[tuple[EvaluationRecord, bool]]:
        """Records of one evaluation, and whether its samples have no answer at all."""
        if run not in self._sealed:
            archive = Archive(archive_of(self._root, run))
            try:
                records = records_in(archive)
                snapshot = archive.snapshot() if records else None
                blank = snapshot is not None and _has_no_answer(snapshot)
            except (ArchiveError, StorageError, ValueError) as error:
                raise Unavailable(f"The records of evaluation {run} can't be read: {error}") from error
            if snapshot is None or not snapshot.sealed:
                return [(record, blank) for record in records]
            self._sealed[run] = (records, blank)
        records, blank = self._sealed[run]
        return [(record, blank) for record in records]

    def _snapshot(self, result: Result) -> Snapshot:
        try:
            snapshot = Archive(archive_of(self._root, result.run.partition(".")[0])).snapshot()
        except (ArchiveNotFoundError, StorageError) as error:
            raise Unavailable(f"The samples of {result.run} can't be read: {error}") from error
        if SAMPLES.name not in snapshot.tables:
            raise Unavailable(f"{result.run} left no samples.")
        return snapshot


def _has_no_answer(snapshot: Snapshot) -> bool:
    """Whether there are generated answers and a filter took nothing from any of them."""
    if SAMPLES.name not in snapshot.tables:
        return False
    generated = taken = 0
    for batch in snapshot.batches(SAMPLES.name, ["kind", "filter", "extracted"]):
        is_taken = pc.and_(pc.equal(batch["kind"], "generation"), pc.not_equal(batch["filter"], "none"))
        answers = batch["extracted"].filter(is_taken).drop_null()
        generated += pc.sum(is_taken).as_py() or 0
        taken += len(answers) - (pc.sum(pc.is_in(answers, value_set=pa.array(NOTHING_TAKEN))).as_py() or 0)
    return generated > 0 and taken == 0


def _has(batch: pa.RecordBatch, verdict: Verdict | None) -> pa.Array:
    """Which samples of a batch have a verdict."""
    if verdict is None:
        return pa.array([True] * batch.num_rows, pa.bool_())
    grading = batch["grading"]
    if verdict == "ungraded":
        return grading.is_null()
    passed = pc.struct_field(grading, "passed")
    return pc.and_kleene(grading.is_valid(), passed if verdict == "passed" else pc.invert(passed))


def _newest(artifacts: Sequence[CatalogArtifact]) -> list[CatalogArtifact]:
    """The newest one of each partition; `by_asset` gives them newest first."""
    newest: dict[str | None, CatalogArtifact] = {}
    for artifact in artifacts:
        newest.setdefault(artifact.partition, artifact)
    return [newest[partition] for partition in sorted(newest, key=str)]


def _measured(catalog: Catalog, evaluation: CatalogArtifact) -> tuple[Prediction, str]:
    """What a checkpoint measured beside what was registered, and the digest of the register's entry."""
    told = Artifact.open_at(evaluation.url).read_json("evaluation.json")
    digest = str(evaluation.payload["inputs"]["prediction"])
    entries = catalog.by_digest(digest)
    result, run = told["prediction"], told["run"]
    prediction = Prediction(
        subject=evaluation.partition or evaluation.asset,
        metric=result["metric"],
        predicted=result["predicted"],
        tolerance=float(entries[0].stats["tolerance"]) if entries else float((result["score"] or {}).get("tolerance", 0.0)),
        measured=result["measured"],
        unscored=None if result["score"] else result["reason_not_scored"] or "no reason was given",
        detail={"tokens": run["tokens"], "step": run["step"]},
    )
    return prediction, digest


def _waiting(entry: CatalogArtifact) -> Prediction:
    """A prediction that nothing was measured against yet."""
    told = Artifact.open_at(entry.url).read_json("prediction.json")
    return Prediction(
        subject="not measured yet",
        metric=told["identity"]["metric"],
        predicted=told["predicted"],
        tolerance=told["tolerance"],
        measured=None,
        detail={"tokens": told["token_mark"]},
    )
