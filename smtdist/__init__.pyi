# The public names, and where each is. `__init__.py` reads this file.
from . import datasets as datasets
from . import plot as plot
from .concepts.estimator import BinaryConcepts as BinaryConcepts
from .configuration import PRESETS as PRESETS
from .configuration import Configuration as Configuration
from .configuration import preset as preset
from .data.video import import_videos as import_videos
from .errors import SmtdistError as SmtdistError
from .evaluate.kernel_head import KernelHead as KernelHead
from .evaluate.ridge_head import RidgeHead as RidgeHead
from .evaluate.tuning import tune as tune
from .models.adding import merge as merge
from .models.adding import update as update
from .models.coders.estimators import SparseCoding as SparseCoding
from .models.coders.estimators import SpikeSlabCoder as SpikeSlabCoder
from .models.export import export as export
from .models.functional.estimator import VideoSMT as VideoSMT
from .models.importing import import_images as import_images
from .models.kernel.estimators import ContrastiveKernel as ContrastiveKernel
from .models.kernel.estimators import KernelAutoencoder as KernelAutoencoder
from .models.kernel.estimators import SpectralContrastiveKernel as SpectralContrastiveKernel
from .models.merge import refit as refit
from .models.model import Model as Model
from .models.points.estimator import PointSMT as PointSMT
from .models.smt import SMT as SMT
from .models.store import load as load
from .models.store import save as save
from .models.tree import open_datatree as open_datatree
from .models.words.estimator import WordSMT as WordSMT
from .monitor.run import start as start
from .monitor.watch import watch as watch
from .report.build import write_report as write_report

__version__: str
