"""The command line; `commands.py` lists what there is."""

from smtdist.cli.app import app, main

__all__ = ["app", "main"]
