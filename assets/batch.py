"""Several partitions in one run, each with the data version of its own artifact.

Dagster gives every partition of a run one data version (dagster issue 34013) and fails them together (17836). So each
partition is recorded by an event of its own instead of Dagster's, and what was built before a failure is recorded as well.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import dagster as dg
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION as RECORDED_BY_ITSELF
from dagster._core.events import DagsterEvent, DagsterEventBatchMetadata
from dagster._core.execution.plan.execute_step import _build_data_version_tags, _get_input_provenance_data

Results = Mapping[str, dg.MaterializeResult[Any]]


def record_each(
    context: dg.AssetExecutionContext, code_version: str, results: Results, failures: Mapping[str, dg.Failure]
) -> Iterator[dg.MaterializeResult[Any]]:
    """Record everything that runs of each partition alone would have recorded, and give the step its output.

    Args:
        results: by partition, what a run of it alone would have recorded.
        failures: by partition, why it could not be had.

    Raises:
        dg.Failure: names every partition that failed.
    """
    _record(context, code_version, results)
    if failures:
        told = "; ".join(f"{key}: {failure.description}" for key, failure in failures.items())
        kept = f"; the other {len(results)} are recorded" if results else ""
        raise dg.Failure(f"{len(failures)} of {len(failures) + len(results)} partitions failed{kept}: {told}", allow_retries=False)
    yield dg.MaterializeResult(metadata={RECORDED_BY_ITSELF: True}, check_results=_checks_together(results))


def _record(context: dg.AssetExecutionContext, code_version: str, results: Results) -> None:
    """One batch of materializations: storing them one by one takes longer than having them."""
    tags, batch, last = _input_tags(context, code_version), uuid4().hex, len(results) - 1
    for at, (key, result) in enumerate(results.items()):
        assert result.data_version is not None
        own = {**tags, "dagster/data_version": result.data_version.value}
        event = dg.AssetMaterialization(context.asset_key, partition=key, metadata=result.metadata, tags=own)
        DagsterEvent.asset_materialization(context.get_step_execution_context(), event, DagsterEventBatchMetadata(batch, at == last))


def _input_tags(context: dg.AssetExecutionContext, code_version: str) -> dict[str, str]:
    """Code version and inputs as Dagster itself would write them: by these it tells what is stale."""
    step = context.get_step_execution_context()
    inputs = _get_input_provenance_data(context.asset_key, step)
    return _build_data_version_tags(dg.DataVersion(""), code_version, inputs, data_version_is_user_provided=True)


def _checks_together(results: Results) -> list[dg.AssetCheckResult]:
    """One result per check: passed if it passed for every partition, and where it did not."""
    outcomes: dict[str, list[tuple[str, dg.AssetCheckResult]]] = {}
    for key, result in results.items():
        for check in result.check_results or ():
            outcomes.setdefault(str(check.check_name), []).append((key, check))
    together = []
    for name, found in outcomes.items():
        failed = [key for key, check in found if not check.passed]
        metadata = {"failed": ", ".join(failed)} if failed else {}
        together.append(dg.AssetCheckResult(check_name=name, passed=not failed, severity=found[0][1].severity, metadata=metadata))
    return together
