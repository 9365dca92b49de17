"""Out-of-core, distributed, white-box representation learning with the sparse manifold transform."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from smtdist import datasets as datasets
    from smtdist import plot as plot
    from smtdist.concepts.estimator import BinaryConcepts
    from smtdist.configuration import PRESETS, Configuration, preset
    from smtdist.data.video import import_videos
    from smtdist.errors import SmtdistError
    from smtdist.evaluate.kernel_head import KernelHead
    from smtdist.evaluate.ridge_head import RidgeHead
    from smtdist.evaluate.tuning import tune
    from smtdist.models.adding import merge, update
    from smtdist.models.coders.estimators import SparseCoding, SpikeSlabCoder
    from smtdist.models.export import export
    from smtdist.models.functional.estimator import VideoSMT
    from smtdist.models.importing import import_images
    from smtdist.models.kernel.estimators import (
        ContrastiveKernel,
        KernelAutoencoder,
        SpectralContrastiveKernel,
    )
    from smtdist.models.merge import refit
    from smtdist.models.model import Model
    from smtdist.models.points.estimator import PointSMT
    from smtdist.models.smt import SMT
    from smtdist.models.store import load, save
    from smtdist.models.tree import open_datatree
    from smtdist.models.words.estimator import WordSMT
    from smtdist.monitor.run import start
    from smtdist.monitor.watch import watch
    from smtdist.report.build import write_report

    __version__: str

__all__ = [
    "PRESETS",
    "SMT",
    "BinaryConcepts",
    "Configuration",
    "ContrastiveKernel",
    "KernelAutoencoder",
    "KernelHead",
    "Model",
    "PointSMT",
    "RidgeHead",
    "SmtdistError",
    "SparseCoding",
    "SpectralContrastiveKernel",
    "SpikeSlabCoder",
    "VideoSMT",
    "WordSMT",
    "export",
    "import_images",
    "import_videos",
    "load",
    "merge",
    "open_datatree",
    "preset",
    "refit",
    "save",
    "start",
    "tune",
    "update",
    "watch",
    "write_report",
]

# Workers import the package too and need none of these: a name brings its module with it when it is first used.
_HOMES = {
    "BinaryConcepts": "smtdist.concepts.estimator",
    "PRESETS": "smtdist.configuration",
    "Configuration": "smtdist.configuration",
    "preset": "smtdist.configuration",
    "SmtdistError": "smtdist.errors",
    "KernelHead": "smtdist.evaluate.kernel_head",
    "RidgeHead": "smtdist.evaluate.ridge_head",
    "SparseCoding": "smtdist.models.coders.estimators",
    "SpikeSlabCoder": "smtdist.models.coders.estimators",
    "ContrastiveKernel": "smtdist.models.kernel.estimators",
    "KernelAutoencoder": "smtdist.models.kernel.estimators",
    "SpectralContrastiveKernel": "smtdist.models.kernel.estimators",
    "load": "smtdist.models.store",
    "save": "smtdist.models.store",
    "refit": "smtdist.models.merge",
    "Model": "smtdist.models.model",
    "SMT": "smtdist.models.smt",
    "open_datatree": "smtdist.models.tree",
    "start": "smtdist.monitor.run",
    "tune": "smtdist.evaluate.tuning",
    "write_report": "smtdist.report.build",
    "export": "smtdist.models.export",
    "import_images": "smtdist.models.importing",
    "import_videos": "smtdist.data.video",
    "update": "smtdist.models.adding",
    "merge": "smtdist.models.adding",
    "WordSMT": "smtdist.models.words.estimator",
    "PointSMT": "smtdist.models.points.estimator",
    "VideoSMT": "smtdist.models.functional.estimator",
    "watch": "smtdist.monitor.watch",
}

_MODULES = ("datasets", "plot")


def __getattr__(name: str) -> _Any:
    if name in _MODULES:  # plot comes with matplotlib
        return _import_module(f"smtdist.{name}")
    if name == "__version__":
        return _import_module("importlib.metadata").version("smtdist")
    if name not in _HOMES:
        raise AttributeError(f"module 'smtdist' has no attribute {name!r}")
    return getattr(_import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__version__"})
