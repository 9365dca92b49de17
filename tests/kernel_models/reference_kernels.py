"""Oracles for the kernel models: the definitions of the paper, in explicit features and loops, and direct optimisation."""

import itertools
import math

import numpy as np
import scipy.optimize


def linear_features(x):
    """φ(x) = x."""
    return np.array(x, dtype=float)


def polynomial_features(x, degree=2, offset=1.0):
    """Monomials of (x, √offset) of one degree, weighted so that φ(x)ᵀφ(y) = (xᵀy + offset)^degree."""
    longer = [*x, math.sqrt(offset)]
    result = []
    for chosen in itertools.combinations_with_replacement(range(len(longer)), degree):
        ways = math.factorial(degree)
        for index in set(chosen):
            ways //= math.factorial(chosen.count(index))
        result.append(math.sqrt(ways) * math.prod(longer[i] for i in chosen))
    return np.array(result)


FEATURES = {"linear": linear_features, "polynomial": polynomial_features}


def mapped(rows, name):
    """Features of rows, as columns (D, n)."""
    return np.stack([FEATURES[name](row) for row in rows], axis=1)


def kernel_value(name, x, y, bandwidth=1.0):
    """One value of a kernel, from its formula."""
    if name == "gaussian":
        return math.exp(-sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / (2 * bandwidth**2))
    if name == "laplacian":
        return math.exp(-sum(abs(a - b) for a, b in zip(x, y, strict=True)) / bandwidth)
    if name == "linear":
        return sum(a * b for a, b in zip(x, y, strict=True))
    if name == "polynomial":
        return (sum(a * b for a, b in zip(x, y, strict=True)) + 1) ** 3
    norms = math.hypot(*x) * math.hypot(*y)
    if norms == 0:
        return 0.0
    u = min(1.0, max(-1.0, sum(a * b for a, b in zip(x, y, strict=True)) / norms))
    kappa0 = (math.pi - math.acos(u)) / math.pi
    kappa1 = (u * (math.pi - math.acos(u)) + math.sqrt(1 - u * u)) / math.pi
    return norms * (kappa1 if name == "relu" else u * kappa0 + kappa1)


def simple_loss(weights, x, plus, minus):
    """Definition 1: Σ f(x_i)ᵀ (f(x_i⁻) - f(x_i⁺)), columns are samples."""
    return sum(
        float((weights.T @ x[:, i]) @ (weights.T @ minus[:, i] - weights.T @ plus[:, i]))
        for i in range(x.shape[1])
    )


def spectral_loss(weights, x, plus, minus, ridge):
    """Definition 2."""
    total = ridge * float((weights**2).sum())
    for i in range(x.shape[1]):
        z, near, far = (weights.T @ part[:, i] for part in (x, plus, minus))
        total += -2 * float(z @ near) + float(z @ far) ** 2
    return total


def spectral_loss_all(weights, x, plus, ridge):
    """Definition 2 in the mean over independent draws of the negative among the anchors."""
    z, near = weights.T @ x, weights.T @ plus
    total = ridge * float((weights**2).sum()) - 2 * float((z * near).sum())
    n = x.shape[1]
    return total + sum(float(z[:, i] @ z[:, j]) ** 2 for i in range(n) for j in range(n)) / n


def autoencoder_loss(first, second, encoder_features, targets, decoder, ridge):
    """Definition 3, for W₁ (D₁, h), W₂ (D₂, d), features (D₁, n), targets (d, n) and a decoder's features by name."""
    total = ridge * (float((first**2).sum()) + float((second**2).sum()))
    for i in range(targets.shape[1]):
        bottleneck = first.T @ encoder_features[:, i]
        total += float(((targets[:, i] - second.T @ FEATURES[decoder](bottleneck)) ** 2).sum())
    return total


def best_decoder(bottleneck, targets, decoder, ridge):
    """W₂ that minimises Definition 3 given the bottleneck (h, n): ridge regression in the features themselves."""
    features = mapped(bottleneck.T, decoder)
    return np.linalg.solve(features @ features.T + ridge * np.eye(len(features)), features @ targets.T)


def orthonormal(free):
    """W = Y (YᵀY)^(-1/2)."""
    u, _, v = np.linalg.svd(free, full_matrices=False)
    return u @ v


def minimise_simple_loss(x, plus, minus, components, seed=0):
    """Minimise Definition 1 over WᵀW = I directly: L-BFGS over free Y, W = Y (YᵀY)^(-1/2), the best of some starts."""
    form = sum(np.outer(x[:, i], minus[:, i] - plus[:, i]) for i in range(x.shape[1]))
    form = (form + form.T) / 2

    def value(flat):
        free = flat.reshape(-1, components)
        inverse = np.linalg.inv(free.T @ free)
        bent = form @ free @ inverse
        inner = free.T @ bent
        return np.trace(inner), 2 * (bent - free @ inverse @ inner).reshape(-1)

    best, rng = None, np.random.default_rng(seed)
    for _ in range(3):
        start = rng.standard_normal(len(x) * components)
        options = {"gtol": 1e-10, "ftol": 1e-16, "maxiter": 5000}
        found = scipy.optimize.minimize(value, start, jac=True, method="L-BFGS-B", options=options).x
        weights = orthonormal(found.reshape(-1, components))
        if best is None or simple_loss(weights, x, plus, minus) < simple_loss(best, x, plus, minus):
            best = weights
    return best


def minimise_spectral_loss(loss, features, components, starts=5, seed=0):
    """Minimise a loss of W without constraints, from several starts."""
    rng = np.random.default_rng(seed)
    found = [
        scipy.optimize.minimize(
            lambda flat: loss(flat.reshape(features, components)),
            rng.standard_normal(features * components) * 0.3,
            options={"gtol": 1e-8},
        )
        for _ in range(starts)
    ]
    return min(found, key=lambda one: one.fun).fun


def slope(function, point, step=1e-5):
    """Central finite differences of a function of an array."""
    result = np.zeros_like(point)
    for index in np.ndindex(point.shape):
        up, down = point.copy(), point.copy()
        up[index] += step
        down[index] -= step
        result[index] = (function(up) - function(down)) / (2 * step)
    return result
