"""Encoders of patches: whitened rows in, codes out. They know nothing of files, runs or one another.

Start with `coder.py`, what every code is; `encoder.py` is the shorter base that packages derive from, `l1.py` a code that learns.
"""
