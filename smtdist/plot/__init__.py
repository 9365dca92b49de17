"""Pictures of what a model holds: each function draws into matplotlib axes and returns them.

Without `axes` a function makes a figure of its own, which needs no display and leaves matplotlib's global
state alone: `axes.figure.savefig("spectrum.png")`.
"""

from smtdist.plot.images import confusion, image_map, matching_patches, neighbours
from smtdist.plot.models import atom_neighbours, curve, dictionary, filter_axes, spectrum
from smtdist.plot.sheets import atoms_as_patches, sheet

__all__ = [
    "atom_neighbours",
    "atoms_as_patches",
    "confusion",
    "curve",
    "dictionary",
    "filter_axes",
    "image_map",
    "matching_patches",
    "neighbours",
    "sheet",
    "spectrum",
]
