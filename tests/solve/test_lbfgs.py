"""L-BFGS where a device seems to be finds what SciPy's finds on the host, in about as many steps."""

import fake_cupy
import numpy as np
import pytest
import scipy.optimize

from smtdist.solve.lbfgs import Ends, minimise

rng = np.random.default_rng(0)
ROWS, SIGNS = rng.standard_normal((200, 30)) * np.geomspace(0.03, 3, 30), rng.choice([-1.0, 1.0], 200)
WELL = np.linspace(0, 1, 30)


def logistic(x):
    outputs = ROWS @ x * SIGNS
    slope = -(SIGNS / (1 + np.exp(outputs))) @ ROWS / 200 + 1e-3 * x
    return float(np.logaddexp(0, -outputs).mean() + 5e-4 * x @ x), slope


def hinge(x):
    """A second derivative that jumps."""
    slack = np.maximum(1 - ROWS @ x * SIGNS, 0)
    return float((slack**2).mean() + 5e-4 * x @ x), -2 * (slack * SIGNS) @ ROWS / 200 + 1e-3 * x


def quartic(x):
    """Minima that are flat, and a long way off."""
    return float(((x - 100 * WELL) ** 4).sum()), 4 * (x - 100 * WELL) ** 3


def valley(x):
    return float(scipy.optimize.rosen(x)), scipy.optimize.rosen_der(x)


@pytest.mark.parametrize("function", [logistic, hinge, quartic, valley])
@pytest.mark.parametrize("start", [0.0, 1.3])
def test_a_device_finds_what_scipy_finds(function, start, monkeypatch):
    begin, steps = np.full(30, start), []
    ends = Ends(400, 1200, 1e-6 * abs(function(begin)[1]).max(), 0.0)
    host = minimise(function, begin, ends, lambda: steps.append("host"))
    cupy = fake_cupy.install(monkeypatch)

    def there(x):
        assert type(x) is cupy.ndarray
        value, slope = function(fake_cupy.plain(x))
        return value, cupy.asarray(slope)

    found = minimise(there, cupy.asarray(begin), ends, lambda: steps.append("device"))
    assert (found.status, host.status) == (0, 0)
    assert abs(fake_cupy.plain(found.jac)).max() <= ends.small
    assert found.fun == pytest.approx(host.fun, rel=1e-5, abs=1e-7 * function(begin)[0])
    assert steps.count("device") <= 1.3 * steps.count("host") + 5


def test_a_device_says_how_its_search_ended(monkeypatch):
    cupy = fake_cupy.install(monkeypatch)
    begin = cupy.asarray(np.full(30, 1.3))

    def there(x, sign=1):
        value, slope = valley(fake_cupy.plain(x))
        return value, cupy.asarray(sign * slope)

    assert minimise(there, begin, Ends(3, 99, 1e-6, 0.0), lambda: None).status == 1
    assert minimise(there, begin, Ends(99, 5, 1e-6, 0.0), lambda: None).status == 1
    assert minimise(there, begin, Ends(99, 999, 1e-6, 0.5), lambda: None).status == 0
    wrong = minimise(lambda x: there(x, -1), begin, Ends(9, 999, 1e-6, 0.0), lambda: None)
    assert wrong.status == 2
    np.testing.assert_array_equal(fake_cupy.plain(wrong.x), 1.3)
