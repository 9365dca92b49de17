"""Array in, array out: the numerical work, pure and exact, on the CPU and on CUDA devices.

Start with `types.py`, what kernels hand to each other, and `codes.py`, from pixels to codes. A public function takes NumPy or
CuPy arrays and chooses a body by them: in `cpu/` (compiled), `gpu/` (CUDA) or `generic/` (any array module).
"""
