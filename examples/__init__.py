"""Figures of the papers that are no part of the package, each a script: `python -m examples.NAME`."""
