"""Bodies for CUDA devices: kernels of our own, products on tensor cores, uploads that overlap with the work."""
