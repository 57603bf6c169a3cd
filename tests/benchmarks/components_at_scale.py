"""Connected components of a large planted graph against a union-find, array by array.

    python -m tests.benchmarks.components_at_scale --nodes 10000000

The graph has what real candidate graphs have: stars (one page in many copies), chains (successive versions, the worst
case of label propagation), random small groups, and nodes without an edge; numbers and edges are shuffled. Exit 1 if
a single head differs. Prints edges, components, CPU seconds of both sides and the peak memory of the process.
"""

import argparse
import resource
import sys
import time

import numpy as np
from numpy.typing import NDArray

from ops.dedup.components import components_of
from ops.hashing.compiled import kernel

Numbers = NDArray[np.int64]


def planted_graph(nodes: int, seed: int) -> tuple[Numbers, Numbers]:
    """Left and right ends of the edges, in random order and direction: about 11 edges for each 20 nodes."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(nodes).astype(np.int64)
    star_end, chain_end, group_end = int(nodes * 0.15), int(nodes * 0.35), int(nodes * 0.7)  # the rest has no edge
    left, right = [], []
    begin = 0
    while begin < star_end:  # sizes of a heavy tail, as clusters of real crawls
        size = min(star_end - begin, 2 + int(rng.pareto(0.9)))
        left.append(np.full(size - 1, begin))
        right.append(np.arange(begin + 1, begin + size))
        begin += size
    cuts = rng.random(chain_end - star_end - 1) < 1e-5
    links = np.arange(star_end, chain_end - 1)[~cuts]
    left.append(links)
    right.append(links + 1)
    members = np.arange(chain_end, group_end)
    partners = np.minimum(group_end - 1, members + rng.integers(1, 12, len(members)))
    some = rng.random(len(members)) < 0.6
    left.append(members[some])
    right.append(partners[some])
    one, other = order[np.concatenate(left)], order[np.concatenate(right)]
    kept = one != other
    shuffled = rng.permutation(int(kept.sum()))
    one, other = one[kept][shuffled], other[kept][shuffled]
    turned = rng.random(len(one)) < 0.5
    return np.where(turned, other, one), np.where(turned, one, other)


@kernel
def union_find(nodes: int, left: Numbers, right: Numbers) -> Numbers:
    """The least node of each one's set: path halving, the smaller root wins."""
    parent = np.arange(nodes)
    for i in range(left.size):
        a, b = left[i], right[i]
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        if a < b:
            parent[b] = a
        else:
            parent[a] = b
    for node in range(nodes):  # parents are smaller, so theirs are final
        parent[node] = parent[parent[node]]
    return parent


def compare(nodes: int, seed: int) -> tuple[bool, dict[str, float]]:
    """Whether both sides agree on every node, and what was measured."""
    left, right = planted_graph(nodes, seed)
    union_find(2, left[:0], right[:0])  # compiled outside the clock
    started = time.process_time()
    found = components_of(left, right)
    ours = time.process_time() - started
    started = time.process_time()
    heads = union_find(nodes, left, right)
    theirs = time.process_time() - started
    touched = np.unique(np.concatenate([left, right]))
    equal = np.array_equal(found.members, touched) and np.array_equal(found.heads, heads[touched])
    measures = {
        "nodes": nodes,
        "edges": len(left),
        "members": len(found.members),
        "components": found.count,
        "largest": found.largest,
        "components_cpu_s": round(ours, 2),
        "union_find_cpu_s": round(theirs, 2),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    return equal, measures


def main() -> int:
    parser = argparse.ArgumentParser(description="Components of a planted graph against a union-find.")
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    equal, measures = compare(options.nodes, options.seed)
    print("equal" if equal else "DIFFERENT", *(f"{name}={value}" for name, value in measures.items()), sep="\n  ")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
