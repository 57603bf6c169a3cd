import pytest
from pydantic import ValidationError

from infra.dispatch.devices import device
from infra.dispatch.job import Resources


# Chips, hosts and processes as the vendors count them; v4 and v5p names count TensorCores, two a chip.
@pytest.mark.parametrize(
    ("name", "chips", "hosts", "processes"),
    [
        ("cpu", 0, 1, 1),
        ("h100x1", 1, 1, 1),
        ("h100x8", 8, 1, 8),
        ("h200x8", 8, 1, 8),
        ("h100x64", 64, 8, 64),
        ("gb200x4", 4, 1, 4),
        ("gb200x72", 72, 18, 72),
        ("v4-8", 4, 1, 1),
        ("v4-2048", 1024, 256, 256),
        ("v5p-32", 16, 4, 4),
        ("v5e-16", 16, 4, 4),
        ("v6e-256", 256, 64, 64),
    ],
)
def test_a_name_says_chips_hosts_and_processes(name: str, chips: int, hosts: int, processes: int):
    found = device(name)
    assert (found.chips, found.hosts, found.processes) == (chips, hosts, processes)


@pytest.mark.parametrize("name", ["h100x12", "v4-6", "v4-7", "gb200x6", "h100x0", "h100x3", "v5p-1", "v6e-2"])
def test_a_size_that_fills_no_whole_hosts_is_refused(name: str):
    with pytest.raises(ValueError, match=f"{name}.*doesn't fill whole hosts"):
        device(name)


def test_an_unknown_device_is_refused_where_resources_are_declared():
    with pytest.raises(ValidationError, match=r"'h900x8' is unknown; choose cpu, h100xN"):
        Resources(device="h900x8")
