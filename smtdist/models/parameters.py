"""Parameters of estimators and settings of models have the same names, but for the seed: it is `random_state` in scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from smtdist.errors import ConfigurationError


def require_columns(estimator: Any, X: Any, *, reset: bool) -> None:
    """Keep the names of the columns of a table with `reset`, in a fit; else raise a ValueError for other names or another order.

    They are `feature_names_in_`, as in scikit-learn. Samples without names of columns pass.
    """
    validate_data(estimator, X, reset=reset, skip_check_array=True, ensure_2d=False)


def settings_in(estimator: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return settings by name from the parameters of an estimator."""
    return {name: seed_of(estimator) if name == "seed" else getattr(estimator, name) for name in names}


def seed_of(estimator: Any) -> int:
    """Return the `random_state` of an estimator; raise ConfigurationError where it is no whole number from 0 on."""
    given = estimator.random_state
    if not isinstance(given, int | np.integer) or isinstance(given, bool) or not 0 <= given < 2**63:
        raise ConfigurationError(
            f"random_state is {given!r}; give a whole number from 0 on, so that the fit can be repeated."
        )
    return int(given)


def parameters_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an estimator for settings by name.

    >>> parameters_of({"seed": 3, "size": 4})
    {'random_state': 3, 'size': 4}
    """
    return {"random_state" if name == "seed" else name: value for name, value in settings.items()}
