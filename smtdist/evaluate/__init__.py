"""How good a representation is: nearest neighbours and the numbers that sum them up.

Start with `evaluations.py`, from what is named to an evaluation, and `run.py`, which does it. `head.py` is what classifiers
in files have in common.
"""
