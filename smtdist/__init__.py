"""Out-of-core, distributed, white-box representation learning with the sparse manifold transform."""

from smtdist.configuration import PRESETS, Configuration, preset
from smtdist.errors import SmtdistError
from smtdist.models.files import load, save
from smtdist.models.model import Model
from smtdist.models.smt import SMT

__all__ = ["PRESETS", "SMT", "Configuration", "Model", "SmtdistError", "load", "preset", "save"]
