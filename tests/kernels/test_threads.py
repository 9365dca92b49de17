"""BLAS has one thread while any of ours asks for it, and all of its threads after the last, whoever that is."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from smtdist.kernels import threads
from smtdist.kernels.threads import single_blas


def blas_threads():
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


class Elsewhere:
    """Another thread in `single_blas`, until told to leave it; it lives on after that."""

    def __enter__(self):
        self.inside, self.leave, self.left, self.end = (threading.Event() for _ in range(4))
        self.thread = threading.Thread(target=self.work)
        self.thread.start()
        assert self.inside.wait(60)
        return self

    def work(self):
        with single_blas():
            self.inside.set()
            assert self.leave.wait(60)
        self.left.set()
        assert self.end.wait(60)

    def go(self):
        self.leave.set()
        assert self.left.wait(60)

    def __exit__(self, *ignored):
        self.leave.set()
        self.end.set()
        self.thread.join(60)


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("BLAS has one thread here")
        yield


@pytest.mark.usefixtures("two_threads")
def test_of_two_the_other_may_leave_last():
    with Elsewhere() as other:
        with single_blas():
            assert blas_threads() == {1}
        assert blas_threads() == {1}, "the other is not done"
        other.go()
        assert blas_threads() == {2}


@pytest.mark.usefixtures("two_threads")
def test_of_two_the_first_may_leave_first():
    with Elsewhere() as other:
        with single_blas():
            other.go()
            assert blas_threads() == {1}
        assert blas_threads() == {2}, "though the one who set it lives on"


@pytest.mark.usefixtures("two_threads")
def test_the_limit_of_a_user_is_no_hindrance_and_comes_back():
    with single_blas():
        assert blas_threads() == {1}
        with single_blas():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {2}


def test_the_blas_is_the_one_that_numpy_multiplies_with(monkeypatch):
    """SciPy may bring another of another version; what threadpoolctl does not know has the name that NumPy was built with."""
    import scipy.linalg  # noqa: F401  # so that both are loaded

    own = [one for one in threadpool_info() if "/numpy" in one["filepath"] and one["user_api"] == "blas"]
    for one in own:
        assert threads.numpy_blas() == " ".join(
            one[name] for name in ("internal_api", "version", "architecture") if one.get(name)
        )
    nothing = type("Nothing", (), {"select": lambda self, user_api: self, "info": lambda self: []})
    monkeypatch.setattr(threads, "ThreadpoolController", nothing)
    assert threads.numpy_blas().startswith(
        np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    )
