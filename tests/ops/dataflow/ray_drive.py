"""`python -m tests.ops.dataflow.ray_drive CALL OUT`: call what was pickled, as the driver of a Ray job, and keep what it gives."""

import pickle
import sys
from pathlib import Path

if __name__ == "__main__":
    function, arguments = pickle.loads(Path(sys.argv[1]).read_bytes())
    try:
        given = function(*arguments)
    except Exception as error:
        given = error
    partial = Path(f"{sys.argv[2]}.part")
    partial.write_bytes(pickle.dumps(given))
    partial.rename(sys.argv[2])
