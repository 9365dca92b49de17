"""Eigenproblems of sufficient statistics; solvers take matrices and know nothing of where they came from.

Start with `generalized.py`, whole matrices in memory; `tiled.py` and `pencil.py` are for matrices in tiles and in files.
"""
