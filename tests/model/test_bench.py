"""The training bench on a tiny shape: what it measures, what it says, what it refuses."""

import math

import pytest

from model.bench.__main__ import PEAKS, bench, main
from model.bench.measure import peak_of
from model.bench.report import Report, lines_of
from model.bench.shapes import TRIANGLE, Shape, Side, accelerator_shapes, small
from model.flops import PUBLISHED, train_flops_per_token
from tests.model.learner import CHEAP, variant

PEAK = 1e12


def tiny_shape() -> Shape:
    model = variant(kernels=CHEAP, layers=1, global_every=None)
    vocabulary = variant(kernels={**CHEAP, "loss_blocks": "vocabulary"}, layers=1, global_every=None)
    sides = (
        Side("tokens", "cross-entropy", model, is_default=True),
        Side("vocabulary", "cross-entropy", vocabulary),
        Side("capacity", "moe", model.model_copy(update={"capacity_factor": 1.0}), is_lossy=True),
        Side("dense", "moe", model, is_default=True),
        Side("the trainer's step", "optimizer", model, optimizer="recipe"),
    )
    return Shape("tiny", model, 2, 16, TRIANGLE, sides, (("somebody", 1.0),))


@pytest.fixture(scope="module")
def report() -> Report:
    shape = tiny_shape()
    return bench(shape, {side.group for side in shape.sides}, 3, PEAK)


def test_every_side_is_measured_in_every_round(report: Report) -> None:
    for row in report.sides:
        assert row.failed is None
        assert row.tokens_per_s is not None
        assert row.step_s is not None
        assert 0 < row.tokens_per_s.low <= row.tokens_per_s.median <= row.tokens_per_s.high
        assert row.tokens_per_s.high == pytest.approx(report.tokens_per_step / row.step_s.low)
        assert row.compile_s is not None
        assert row.compile_s > 0
        assert row.planned_bytes is not None
        assert row.planned_bytes > 4 * 3 * report.parameters, "parameters and both moments at least"


def test_sides_that_compute_the_same_agree_in_the_first_loss(report: Report) -> None:
    losses = {row.side: row.first_loss for row in report.sides}
    assert losses["tokens"] == pytest.approx(losses["vocabulary"], rel=1e-6)
    assert losses["tokens"] == losses["dense"]
    assert losses["tokens"] == pytest.approx(losses["the trainer's step"], rel=1e-6)
    assert losses["tokens"] == pytest.approx(math.log(64), rel=0.1)


def test_utilisation_is_counted_flops_over_the_peak(report: Report) -> None:
    shape = tiny_shape()
    for row in report.sides:
        assert row.tokens_per_s is not None
        assert row.mfu == pytest.approx(row.tokens_per_s.median * train_flops_per_token(shape.model, 16, TRIANGLE) / PEAK)


def test_a_lossy_side_is_never_the_fastest(report: Report) -> None:
    assert report.fastest["moe"] == "dense"
    assert report.rivals["moe"] == []


def test_a_report_names_its_conventions(report: Report) -> None:
    text = "\n".join(lines_of(report))
    for word in ("causal=triangle", "head=True", "planned_bytes:", "share_of_matmul:", "somebody: 1 tokens/s", "no ratio", "(lossy)"):
        assert word in text
    assert Report.model_validate_json(report.model_dump_json()) == report


def test_an_accelerator_that_is_not_there_is_said_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--gpu"]) == 2
    assert "JAX finds no accelerator here, only CPUs" in capsys.readouterr().err


def test_groups_that_do_not_exist_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "moo"])
    assert "--only moo: groups here are attention, cross-entropy" in capsys.readouterr().err


def test_the_small_shape_is_the_one_that_peers_were_measured_on() -> None:
    shape = small()
    assert shape.tokens == 2048
    assert train_flops_per_token(shape.model, 512, TRIANGLE) == pytest.approx(31.5e6, rel=0.01)
    assert [side.name for side in shape.sides if side.is_default and side.is_lossy] == []


def test_accelerators_are_measured_as_published_utilisation_is() -> None:
    shapes = accelerator_shapes()
    assert [(shape.name, shape.sequence_tokens, shape.convention) for shape in shapes] == [
        ("d768", 4096, PUBLISHED),
        ("d1024", 4096, PUBLISHED),
    ]
    assert all(side.model.kernels.compute_dtype == "bfloat16" for shape in shapes for side in shape.sides)
    assert [rate for shape in shapes for _, rate in shape.published] == [66_700, 47_000]


def test_a_peak_belongs_to_the_longest_name_that_fits() -> None:
    assert peak_of("NVIDIA H200", PEAKS) == 989e12
    assert peak_of("NVIDIA GB200", PEAKS) == PEAKS["GB200"]
    assert peak_of("cpu", PEAKS) is None
