"""`python -m tests.infra.dispatch.run_job STORE STATE JOB`: a dispatcher in a process of its own, to be killed."""

import sys
from pathlib import Path

from infra.artifacts.store import ArtifactStore
from infra.dispatch.dispatcher import Dispatcher
from infra.dispatch.engines.local import LocalBackend
from infra.dispatch.job import Job

if __name__ == "__main__":
    root, state, job = sys.argv[1:]
    Dispatcher(ArtifactStore(root), LocalBackend(Path(state))).run(Job.model_validate_json(job))
