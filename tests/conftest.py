"""What all tests share: `import reference` (the oracle), `import drawing` (small images), and where real data lie."""

import multiprocessing
import os
from pathlib import Path

import dask
import pytest
from hypothesis import settings
from measured import on_threads

from smtdist.engine import plan

# The same draws every time, so that a green tree stays green; `pytest --hypothesis-profile explore` draws anew.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None, max_examples=300, print_blob=True)
settings.load_profile("repeatable")


def pytest_configure(config):
    """With `-n`, each process and those it starts leave BLAS one thread: threads that spin cost the others their cores.

    The processes of xdist are started after this, so that theirs is set before NumPy is loaded.
    """
    # where it is set, each of the many processes that tests start would compile the whole package anew
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if getattr(config.option, "numprocesses", None):
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")
    start_workers_by_forking()


def start_workers_by_forking():
    """Fork the workers of clusters that tests start in this process from one that has loaded what they need.

    It halves what a worker costs. Commands that tests run as processes start theirs as users' commands do.
    """
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    import distributed  # noqa: F401  # it names packages to load, too

    loaded = [
        "distributed",
        "pandas",
        "smtdist.models.fit",
        "smtdist.engine.worker",
        "smtdist.monitor.metrics",
    ]
    multiprocessing.get_context("forkserver").set_forkserver_preload(loaded)


@pytest.fixture(scope="session", autouse=True)
def sums_stored_at_once():
    """Store each sum after each task: a test's passes end long before a sum would be stored otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "UNSAVED_SECONDS", 0.0)
        patch.setattr(plan, "UNSAVED_WRITES", 0)
        yield


@pytest.fixture(params=[1, 3])
def thread_count(request):
    """Kernels on one thread, and on several."""
    with on_threads(request.param):
        yield request.param


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes, started once a module: for tests that need some cluster and leave it as it is."""
    from benchmarks.local import local_executor

    with local_executor(2, threads=1) as executor:
        yield executor


@pytest.fixture(scope="session")
def many_images(tmp_path_factory):
    """Images in a file, of which a pass takes long enough to be disturbed."""
    from deploying import write_images

    from smtdist.data.array import as_source

    return as_source((write_images(tmp_path_factory.mktemp("data") / "images.h5"), "train/images"))


@pytest.fixture(scope="session")
def many_fitted(many_images):
    """The model of these images that one process fits."""
    from deploying import CONFIGURATION
    from executors import engine

    from smtdist.models.fit import fit

    return fit(many_images, CONFIGURATION, engine(2))[0]


@pytest.fixture(scope="session")
def stored(tmp_path_factory):
    """Images for tests of coders, in a file."""
    from coding import stored_images

    return stored_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def real_data():
    """The folder of real data: $SMTDIST_DATA, where nothing may be missing, else one beside the checkout, else skip."""
    named = os.environ.get("SMTDIST_DATA")
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(named) if named else beside

    def path(name):
        if (folder / name).exists():
            return folder / name
        if named:
            pytest.fail(f"SMTDIST_DATA is {named}, but it has no {name}")
        return pytest.skip(f"no real data: set SMTDIST_DATA to a folder with {name}")

    return path
