"""Kernels where nothing can be cached, and where everything is."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = "from ops.hashing.kernels import mix64; import numpy as np; print(mix64(np.uint64(1)))"


def run(home: Path) -> str:
    environment = {**os.environ, "XDG_CACHE_HOME": str(home)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


def test_kernels_run_without_a_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert run(tmp_path / "file") == str(0x5692161D100B05E5)


def test_compiled_kernels_are_kept_under_the_hash_of_their_sources(tmp_path: Path) -> None:
    assert run(tmp_path) == str(0x5692161D100B05E5)
    assert list(tmp_path.glob("seaway/kernels-*/**/kernels.mix64-*.nbi"))


def test_of_processes_that_start_together_one_compiles(tmp_path: Path) -> None:
    program = PROGRAM + "; print(sum(mix64.stats.cache_misses.values()))"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    together = [subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = [process.communicate(timeout=120)[0].split() for process in together]
    assert {result for result, _ in printed} == {str(0x5692161D100B05E5)}
    assert sum(int(compiled) for _, compiled in printed) == 1
