"""Pictures of what a model holds: each function draws into matplotlib axes and returns them.

Without `axes` a function makes a figure of its own, which needs no display and leaves matplotlib's global
state alone: `axes.figure.savefig("spectrum.png")`.
"""

from lazy_loader import attach_stub as _attach_stub

__getattr__, __dir__, __all__ = _attach_stub(__name__, __file__)
