"""What scikit-learn asks of every estimator."""

from __future__ import annotations

from typing import Any


def keep(given: dict[str, Any]) -> None:
    """Keep the parameters of a constructor, its `locals()`, as attributes of their names, unchanged.

    >>> class Estimator:
    ...     def __init__(self, size=2):
    ...         keep(locals())
    >>> Estimator(3).size
    3
    """
    vars(given["self"]).update((name, value) for name, value in given.items() if name != "self")
