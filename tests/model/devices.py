"""Processes with as many host devices as a test asks for: a JAX process has one number of them for its life."""

import os
import subprocess
import sys

QUICK_COMPILATION = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
"""Compiling is nearly all of the time of these tests, and the code need not be fast."""


def device_environment(count: int) -> dict[str, str]:
    """What makes a process see so many devices."""
    return {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count} {QUICK_COMPILATION}", "JAX_PLATFORMS": "cpu"}


def on_devices(count: int, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a module of the tests on so many devices."""
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, env=os.environ | device_environment(count), capture_output=True, text=True, check=False, timeout=280)
