"""Eigenproblems of sufficient statistics; solvers take matrices and know nothing of where they came from."""
