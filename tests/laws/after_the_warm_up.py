"""Print what is compiled after the warm-up copy of a statistic has run; a program: each case is a process of its own."""

import multiprocessing
import sys

from laws.every_statistic import CASES
from numba.core.dispatcher import Dispatcher

from smtdist.engine import worker

KERNELS = {
    one
    for name, module in list(sys.modules.items())
    if name.startswith("smtdist")
    for one in vars(module).values()
    if isinstance(one, Dispatcher)
}


def compiled():
    return {f"{one.__module__}.{one.__name__} {types}" for one in KERNELS for types in one.signatures}


def compiled_late(name):
    """Return what a batch needs that the warm-up, which an engine runs before a pass, has not compiled."""
    case = CASES[name]
    statistic, samples = case.bulk() if case.bulk else (case.statistic, case.samples(4, 7))
    worker.probe(statistic.miniature(), samples.shape, samples.dtype.name, 1)
    before, state = compiled(), statistic.zero()
    statistic.update(state, samples, 0)
    statistic.merge(statistic.zero(), state)
    return [f"{name}: {one}" for one in sorted(compiled() - before)]


if __name__ == "__main__":
    # a process that was forked before anything was compiled starts like a worker, but for the imports
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        for late in pool.imap(compiled_late, sys.argv[1:], chunksize=1):
            print(*late, sep="\n", end="\n" * bool(late))
