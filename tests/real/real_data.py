"""Where the real data lies, and the skip that says so when it doesn't."""

from pathlib import Path

import pytest

REAL_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

needs_real_data = pytest.mark.skipif(
    not REAL_DATA.is_dir(), reason=f"no real data at {REAL_DATA}; put a checkout of it beside the repository, as its README says"
)
