"""Become a server that does not outlive its worker: `python -m infra.serving.child COMMAND ...`, in the worker's process group.

The kernel kills it when the worker that `PARENT_VARIABLE` names dies, however that dies: else it would keep the accelerator.
"""

import os
import sys

from infra.supervise.processes import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    os.execvp(sys.argv[1], sys.argv[1:])
