"""The kernels of a pass are compiled before its memory is measured: nothing is compiled while it runs."""

from calling import program

PROGRAM = """
import importlib
import pkgutil
import sys
from dataclasses import replace
from itertools import product

import numpy as np
from numba.core.dispatcher import Dispatcher

import smtdist.kernels.cpu as cpu
from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.engine import worker
from smtdist.models.plan import fit_steps

names = [module.name for module in pkgutil.iter_modules(cpu.__path__, "smtdist.kernels.cpu.")]
kernels = [one for name in names for one in vars(importlib.import_module(name)).values() if isinstance(one, Dispatcher)]
rng = np.random.default_rng(0)
images = rng.integers(0, 256, (40, 12, 12, 1), dtype=np.uint8)
images[3] = 7
source = as_source(images)


def compiled():
    return {(one.__name__, str(types)) for one in kernels for types in one.signatures}


def passed(statistic, ways):
    worker.probe(statistic.miniature(), source.shape, "uint8", 1)
    before = compiled()
    for one in ways:
        one.update(one.zero(), images, 0)
    return compiled() - before


grid = rng.integers(-800, 800, (700, 9)).astype(np.float32)
for feature, context, order, policy in product(("gq", "vq"), (2, "whole"), (1, 2), ("keep", "leave_out", "activate_best")):
    settings = Configuration(
        patch=3, feature=feature, context=context, order=order, dictionary=700, n_components=4, mean="patch",
        constant_patch=policy, zero_code=policy,
    )
    for step in fit_steps(source, settings):
        whole, found = step.statistic, set()
        if step.name == "statistics":
            whole = replace(whole, encoder=replace(whole.encoder, atoms=grid))
            for sums in (whole, whole.tiled(3)[1]):
                cuts = [replace(sums.encoder, cut=cut) for cut in (0, 2_000_000)]  # many and few active atoms
                found |= passed(sums, [replace(sums, encoder=encoder) for encoder in cuts])
        else:
            found = passed(whole, [whole])
        if found:
            sys.exit(f"{settings.code}, {context}, {order}, {policy}, {step.name}: {sorted(found)}")
"""


def test_nothing_is_compiled_while_a_pass_runs():
    """In a process of its own: another test has compiled this or that already."""
    program(PROGRAM)
