"""The command line: `smtdist demo | plan | fit | resume | transform | evaluate | info`."""

from smtdist.cli.app import app, main

__all__ = ["app", "main"]
