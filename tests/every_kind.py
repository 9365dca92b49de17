"""What there is of every kind of model, from the package itself: public estimators, and files that earlier versions wrote."""

from pathlib import Path

from sklearn.base import BaseEstimator

import smtdist
from smtdist.models import store
from smtdist.models.kinds import KINDS

PUBLIC = {name: getattr(smtdist, name) for name in smtdist.__all__}
ESTIMATORS = {
    name: one for name, one in PUBLIC.items() if isinstance(one, type) and issubclass(one, BaseEstimator)
}
OWN = {name: kind for name, kind in KINDS.items() if kind.home.startswith("smtdist.")}
"""Kinds of models that neither a package nor a test brings."""
FOLDER = Path(__file__).parent / "fixtures" / "models"
FIXTURES = sorted(FOLDER.glob("*.h5"), key=lambda path: path.stem)
KIND = {path: store.kind_at(path) for path in FIXTURES}
MODELS = [path for path in FIXTURES if KIND[path] in OWN]
FIRST = {kind: path for path, kind in reversed(KIND.items()) if path in MODELS}
"""A file of each kind of models."""
