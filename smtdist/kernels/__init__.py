"""Array in, array out: the numerical work, pure and exact, on the CPU and on CUDA devices."""
