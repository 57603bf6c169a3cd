"""What the engine remembers of an attempt after Slurm forgot it: a folder that all its machines share.

    {folder}/{job id}/{uid}/submission.json   that it was handed to Slurm, and what for
                            log.txt           what its supervisors and workers print
                            ended.json        its end; the first that was concluded stays

Without it an attempt's fate would change when slurmctld drops the job (MinJobAge).
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from infra.dispatch.backend import Handle
from infra.dispatch.endings import End
from infra.storage.objects import create_exclusive, read_or_none


class Submission(BaseModel):
    """What was handed to Slurm. `spec_url` lies in the attempt's directory."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec_url: str
    hosts: int

    @property
    def directory(self) -> str:
        return self.spec_url.rpartition("/")[0]


class Memory:
    """The folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def log(self, handle: Handle) -> Path:
        return self._of(handle) / "log.txt"

    def remember(self, handle: Handle, submission: Submission) -> None:
        """Note it before Slurm is asked; whoever attaches notes the same."""
        create_exclusive(str(self._of(handle) / "submission.json"), submission.model_dump_json().encode())

    def submission(self, handle: Handle) -> Submission | None:
        data = read_or_none(str(self._of(handle) / "submission.json"))
        return None if data is None else Submission.model_validate_json(data)

    def conclude(self, handle: Handle, end: End) -> End:
        """Make this the end, unless another was concluded; give the one that stands."""
        create_exclusive(self._ended(handle), end.model_dump_json().encode())
        return self.end(handle) or end

    def end(self, handle: Handle) -> End | None:
        data = read_or_none(self._ended(handle))
        return None if data is None else End.model_validate_json(data)

    def _ended(self, handle: Handle) -> str:
        return str(self._of(handle) / "ended.json")

    def _of(self, handle: Handle) -> Path:
        return self._folder / handle.job_id / handle.attempt.uid
