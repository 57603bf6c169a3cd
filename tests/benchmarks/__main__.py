"""`make bench`: every benchmark, each printing ratios against named peers measured in the same run."""

from tests.benchmarks import bench_data_kernels

if __name__ == "__main__":
    bench_data_kernels.main()
