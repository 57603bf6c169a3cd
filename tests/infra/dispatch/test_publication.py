"""A real worker killed around the one create that publishes."""

from pathlib import Path
from typing import Literal

import pytest

from infra.artifacts.lease import attempts
from infra.artifacts.store import ArtifactStore
from infra.dispatch.dispatcher import Dispatcher
from tests.infra.dispatch.builders import job_of
from tests.infra.dispatch.programs import PublicationConfig, die_at_publication


@pytest.mark.parametrize(("moment", "attempted"), [("before", 2), ("after", 1)])
def test_a_kill_around_publication_leaves_a_whole_artifact_or_none(
    dispatcher: Dispatcher, store: ArtifactStore, tmp_path: Path, moment: Literal["before", "after"], attempted: int
):
    job = job_of(store, die_at_publication, PublicationConfig(moment=moment, marks=str(tmp_path)))
    outcome = dispatcher.run(job)
    store.verify(outcome.artifact)
    assert len(attempts(job.address)) == attempted
    assert (tmp_path / "died").exists()
    undisturbed_job = job_of(store, die_at_publication, PublicationConfig(moment=moment, marks=str(tmp_path)), asset="undisturbed")
    assert outcome.artifact.digest == dispatcher.run(undisturbed_job).artifact.digest
