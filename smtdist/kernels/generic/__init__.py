"""Bodies that run on any array module (NumPy, CuPy); the plain statement of what each kernel computes."""
