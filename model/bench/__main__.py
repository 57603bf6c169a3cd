"""What one update costs on this machine: tokens/s, seconds to compile, memory, and the share of the machine's own matmul rate.

python -m model.bench                        # the shape of two cores: every MoE back end, every cross-entropy
python -m model.bench --json --rounds 9
python -m model.bench --only moe             # the sides of one group
python -m model.bench --peers .venv-peers-model/bin/python [--real-time]   # beside OLMoE on torch and Mixtral of levanter
python -m model.bench --gpu                  # d768 and d1024 in bfloat16 at 4096 tokens, with MFU; needs an accelerator
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import jax

from model.bench.against import MALLOC, compare
from model.bench.against import lines_of as comparison_lines
from model.bench.measure import measure, peak_of
from model.bench.report import Report, lines_of, report_of
from model.bench.shapes import Shape, Side, accelerator_shapes, small

PEAKS = {"A100": 312e12, "H100": 989e12, "H200": 989e12, "B200": 2250e12, "GB200": 2250e12, "v4": 275e12, "v5p": 459e12, "v6e": 918e12}
"""Nominal dense bfloat16 FLOP/s of a device, as vendors state them."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m model.bench", description="Measure one update in all of its forms.")
    parser.add_argument("--json", action="store_true", help="one JSON list on standard output")
    parser.add_argument("--gpu", action="store_true", help="the shapes of an accelerator")
    parser.add_argument("--peers", type=Path, metavar="PYTHON", help="an interpreter that has torch, transformers and marin-levanter")
    parser.add_argument("--real-time", action="store_true", help="with --peers: time in the kernel's real-time class (root, Linux)")
    parser.add_argument("--rounds", type=int, default=5, help="updates that are timed of every side")
    parser.add_argument(
        "--only", action="append", default=[], metavar="GROUP", help="moe, cross-entropy, attention, layers, dtype, optimizer"
    )
    parser.add_argument("--peak-flops", type=float, help="the device's nominal FLOP/s, where this program doesn't know it")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least one update must be timed")
    if options.peers:
        return beside_peers(options.peers, options.rounds, options.real_time, options.json)
    if options.gpu and jax.default_backend() == "cpu":
        print("--gpu: JAX finds no accelerator here, only CPUs; run it on a machine with one, or leave --gpu out", file=sys.stderr)
        return 2
    shapes = accelerator_shapes() if options.gpu else (small(),)
    known = {side.group for shape in shapes for side in shape.sides}
    if unknown := set(options.only) - known:
        parser.error(f"--only {', '.join(sorted(unknown))}: groups here are {', '.join(sorted(known))}")
    jax.config.update("jax_enable_compilation_cache", False)  # a compile that is not made can't be timed
    peak = options.peak_flops or peak_of(jax.devices()[0].device_kind, PEAKS)
    reports = [bench(shape, options.only or known, options.rounds, peak) for shape in shapes]
    if options.json:
        print(json.dumps([report.model_dump(mode="json") for report in reports], indent=1))
        return 0
    for report in reports:
        print("\n".join(lines_of(report)))
    return 0


def beside_peers(python: Path, rounds: int, real_time: bool, as_json: bool) -> int:
    """The small shape with its default kernels, split over two devices of this CPU, beside every peer."""
    if not python.is_file():
        print(f"--peers {python}: there is no such interpreter; install torch, transformers and marin-levanter beside one", file=sys.stderr)
        return 2
    if MALLOC.items() - os.environ.items():  # it is read when a process starts
        os.execve(sys.executable, [sys.executable, "-m", "model.bench", *sys.argv[1:]], os.environ | MALLOC)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)  # the batch is split over them: XLA keeps two cores busier than with threads of one
    shape = small()
    ours = Side(f"Seaway, {shape.model.kernels.moe_backend}", "peers", shape.model, is_default=True)
    found = compare(shape, ours, python, rounds, real_time, lambda line: print(line, file=sys.stderr, flush=True))
    print(found.model_dump_json(indent=1) if as_json else "\n".join(comparison_lines(found)))
    return 0


def bench(shape: Shape, groups: Sequence[str] | set[str], rounds: int, peak_flops_per_s: float | None) -> Report:
    """Measure the sides of the named groups."""
    sides = tuple(side for side in shape.sides if side.group in groups)
    found = measure(shape, sides, rounds, lambda line: print(line, file=sys.stderr, flush=True))
    return report_of(shape, sides, found, peak_flops_per_s)


if __name__ == "__main__":
    sys.exit(main())
