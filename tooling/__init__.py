"""What the repository's own tools share: the images, the local cluster, the demo, the benchmarks."""
