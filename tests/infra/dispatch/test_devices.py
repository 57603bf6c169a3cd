from contextlib import suppress

import pytest
from pydantic import ValidationError

from infra.dispatch.devices import Topology, device
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
        ("gb200x96", 96, 24, 96),
        ("cpux1", 0, 1, 1),
        ("cpux12", 0, 12, 12),
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


@pytest.mark.parametrize(
    ("name", "topology"),
    [
        ("cpux4", Topology(1, 4, None)),
        ("h100x64", Topology(1, 8, None)),
        ("v5p-32", Topology(1, 4, "slice")),
        ("gb200x4", Topology(1, 1, "rack")),
        ("gb200x64", Topology(1, 16, "rack")),
        ("gb200x80", Topology(2, 10, "rack")),
        ("gb200x96", Topology(2, 12, "rack")),
        ("gb200x192", Topology(3, 16, "rack")),
    ],
)
def test_a_gang_knows_how_its_hosts_must_lie(name: str, topology: Topology):
    assert device(name).topology == topology


@pytest.mark.parametrize(
    ("hosts", "smaller", "larger"),
    [(17, "gb200x64 (16", "gb200x80 (20"), (18, "gb200x64", "gb200x80"), (40, "gb200x156 (39", "gb200x168 (42")],
)
def test_hosts_that_no_equal_slices_of_racks_can_hold_are_refused_with_the_nearest_that_fit(hosts: int, smaller: str, larger: str):
    with pytest.raises(ValueError, match=f"{hosts} hosts can't be placed") as refused:
        Resources(device=f"gb200x{4 * hosts}")
    assert f"choose {smaller}" in str(refused.value)
    assert f"or {larger}" in str(refused.value)


def test_every_accepted_gang_of_racks_fills_more_than_half_of_each_and_no_more_than_can_be_scheduled():
    accepted = {}
    for hosts in range(1, 100):
        with suppress(ValueError):
            accepted[hosts] = device(f"gb200x{4 * hosts}").topology
    assert set(range(1, 17)) <= accepted.keys()
    for hosts, topology in accepted.items():
        assert topology.slices * topology.hosts_per_slice == hosts
        assert topology.hosts_per_slice <= 16
        assert topology.slices == 1 or topology.hosts_per_slice > 9


@pytest.mark.parametrize("name", ["cpux0", "cpux", "cpux-1", "cpu4"])
def test_a_gang_of_no_hosts_is_refused(name: str):
    with pytest.raises(ValueError, match="choose cpu, cpuxN"):
        device(name)


def test_an_unknown_device_is_refused_where_resources_are_declared():
    with pytest.raises(ValidationError, match=r"'h900x8' is unknown; choose cpu, cpuxN, h100xN"):
        Resources(device="h900x8")
