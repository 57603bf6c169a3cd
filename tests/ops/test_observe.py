import subprocess
import sys

from ops.crawl.config import PydocSource
from ops.observe import observe


def test_observing_imports_nothing_heavy() -> None:
    heavy = ("pyarrow", "polars", "numpy", "jax", "fsspec", "httpx")
    script = f"import sys, ops.observe; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_pydoc_source_is_observed_by_its_python_and_its_instant() -> None:
    source = PydocSource(domain="docs", licence="PSF-2.0", snapshot="2026-01-01T00:00:00Z")
    later = source.model_copy(update={"snapshot": "2026-01-02T00:00:00Z"})
    assert observe(source) == observe(source.model_copy(update={"max_pages": 3}))
    assert observe(source) != observe(later)
