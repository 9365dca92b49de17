"""The posterior of spike-and-slab sparse coding by enumeration, from the definition alone; nothing of smtdist is used."""

import itertools

import numpy as np


def log_normal(x, mean, cover):
    away = x - mean
    _, size = np.linalg.slogdet(2 * np.pi * cover)
    return -0.5 * size - 0.5 * away @ np.linalg.solve(cover, away)


class Exact:
    """One v: log p(v), p(h | v) and p(s | h, v) = N(m, Λ⁻¹) for every state of h."""

    def __init__(self, v, W, mu, alpha, bias, beta):
        n = len(mu)
        on_probability = 1 / (1 + np.exp(-bias))
        self.states, joint, self.slabs = [], [], []
        for state in itertools.product([0, 1], repeat=n):
            h = np.array(state, float)
            prior = np.prod(np.where(h == 1, on_probability, 1 - on_probability))
            # s given h is N(h μ, 1/α) for all units; v = W (h s) + noise
            Wh = W * h
            cover = np.diag(1 / beta) + Wh @ np.diag(1 / alpha) @ Wh.T
            joint.append(np.log(prior) + log_normal(v, Wh @ (h * mu), cover))
            precision = np.diag(alpha) + Wh.T @ np.diag(beta) @ Wh
            mean = np.linalg.solve(precision, alpha * h * mu + Wh.T @ (beta * v))
            self.states.append(h)
            self.slabs.append((mean, precision))
        joint = np.array(joint)
        top = joint.max()
        self.log_evidence = top + np.log(np.exp(joint - top).sum())
        self.posterior = np.exp(joint - self.log_evidence)
        self.log_posterior = joint - self.log_evidence

    def spike_marginals(self):
        return sum(p * h for p, h in zip(self.posterior, self.states, strict=True))

    def mean_product(self):
        """E[h∘s | v]."""
        pairs = zip(self.posterior, self.states, self.slabs, strict=True)
        return sum(p * h * slab[0] for p, h, slab in pairs)

    def divergence(self, h_hat, s_hat, W, alpha, beta):
        """KL(Q ‖ P(h, s | v)) with Q(h_i) = ĥ_i and Q(s_i | h_i) = N(h_i ŝ_i, (α_i + h_i W_iᵀβW_i)⁻¹)."""
        total = 0.0
        gains = np.einsum("di,d,di->i", W, beta, W)
        for h, log_p, (mean, precision) in zip(self.states, self.log_posterior, self.slabs, strict=True):
            q = np.prod(np.where(h == 1, h_hat, 1 - h_hat))
            if q == 0:
                continue
            variances = 1 / (alpha + h * gains)
            away = mean - h * s_hat
            between = 0.5 * (
                np.sum(np.diag(precision) * variances)
                + away @ precision @ away
                - len(h)
                - np.linalg.slogdet(precision)[1]
                - np.log(variances).sum()
            )
            total += q * (np.log(q) - log_p + between)
        return total


def draw(rng, n, W, mu, alpha, bias, beta):
    """Rows from the generative process: returns v (n, D), h and s (n, N)."""
    h = rng.random((n, len(mu))) < 1 / (1 + np.exp(-bias))
    s = rng.normal(h * mu, alpha**-0.5)
    v = rng.normal((h * s) @ W.T, beta**-0.5)
    return v, h, s
