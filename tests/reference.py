"""The oracle: the sparse manifold transform as printed, slow, plain and without a line of smtdist.

Equations cite Chen et al., "Minimalistic unsupervised representation learning with the sparse manifold
transform" (ICLR 2023); (2) and (2a) cite the sections of the project's design. What the design fixes
exactly (the pixel grid, the means, the code, the statistics of binary codes) is in integers or fractions.
Positions run row, column; pixels of a patch row, column, channel; A is K x n, one column a position.
"""

import hashlib
import itertools
import math
from fractions import Fraction

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special

SCALE_2 = 2**20
"""Second-order operators are rounded to this grid: rint(2^20 D Dᵀ) (2, contract 2)."""


# ----------------------------------------------------------------------------------------- pixels and patches


def pixel_units(images, pixel_range=None, grey=False):
    """Raw pixels to integers (B, H, W, C): uint8 256 v, float rint(2^16 (v - black) / (white - black))."""
    images = np.asarray(images)
    if images.ndim == 3:
        images = images[..., None]
    if images.dtype == np.uint8:
        units = 256 * images.astype(np.int64)
        if grey and images.shape[3] == 3:
            red, green, blue = (images[..., c].astype(np.int64) for c in range(3))
            units = (77 * red + 150 * green + 29 * blue)[..., None]
        return units
    black, white = (0.0, 1.0) if pixel_range is None else pixel_range
    share = (images.astype(np.float64) - black) / (white - black)
    units = np.rint(share * 2.0**16).astype(np.int64)
    if grey and images.shape[3] == 3:
        units = ((77 * units[..., 0] + 150 * units[..., 1] + 29 * units[..., 2] + 128) // 256)[..., None]
    return units


def unit(is_float):
    """One integer step, as a share of the pixel range [0, 1]."""
    return Fraction(1, 2**16) if is_float else Fraction(1, 255 * 256)


def grey_level(is_float):
    """Integer steps in one of 255 grey levels."""
    return Fraction(2**16, 255) if is_float else Fraction(256)


def patches(units, T):
    """Every T x T patch at stride 1 (section 2, "SMT representation for natural images"): (B, n, p)."""
    B, H, W, C = units.shape
    out = []
    for b in range(B):
        rows = []
        for r in range(H - T + 1):
            for c in range(W - T + 1):
                pixels = [units[b, r + i, c + j, k] for i in range(T) for j in range(T) for k in range(C)]
                rows.append(pixels)
        out.append(rows)
    return np.array(out, dtype=np.int64).reshape(B, (H - T + 1) * (W - T + 1), T * T * C)


def half_up(total, count):
    """total / count rounded to the nearest integer, halves upwards."""
    return (2 * total + count) // (2 * count)


def global_mean(units, T):
    """The mean patch of the data, rounded half up to whole units: (p,)."""
    everything = patches(units, T).reshape(-1, T * T * units.shape[3])
    return half_up(everything.sum(axis=0), len(everything))


def within(rows, columns, i, d):
    """Positions at most d rows and d columns from position i, itself included ("whole": all), in order."""
    r0, c0 = divmod(i, columns)
    return [
        r * columns + c
        for r in range(rows)
        for c in range(columns)
        if d == "whole" or (abs(r - r0) <= d and abs(c - c0) <= d)
    ]


def mean_removed(units, T, mean, mean_context, global_mean=None):
    """Appendix C, x̄_i = x_i - μ_i, every mean a whole number of units: (B, n, p).

    context: μ_i = 1/|N_i| Σ_{j in n(i)} x_j, i itself included; level: the mean of the entries of that; patch: one
    scalar a patch; channel: one a patch and channel; global: the given vector.
    """
    B, H, W, C = units.shape
    rows, columns = H - T + 1, W - T + 1
    X = patches(units, T)
    out = np.empty_like(X)
    for b in range(B):
        for i in range(rows * columns):
            if mean == "context":
                neighbourhood = within(rows, columns, i, mean_context)
                mu = half_up(sum(X[b, j] for j in neighbourhood), len(neighbourhood))
            elif mean == "level":
                neighbourhood = within(rows, columns, i, mean_context)
                mu = half_up(sum(X[b, j].sum() for j in neighbourhood), len(neighbourhood) * X.shape[2])
            elif mean == "patch":
                mu = half_up(X[b, i].sum(), X.shape[2])
            elif mean == "channel":
                sums = X[b, i].reshape(T * T, C).sum(axis=0)
                mu = np.tile(half_up(sums, T * T), T * T)
            elif mean == "global":
                mu = np.asarray(global_mean)
            else:
                raise ValueError(mean)
            out[b, i] = X[b, i] - mu
    return out


# ------------------------------------------------------------------------------------------- chosen positions


def finalised(x):
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014), on 64 bits."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def position_hash(seed, sample, position, view):
    """64 bits of (seed, sample, position, view): one state of splitmix64 a step, each keyed by the one before."""
    golden = 0x9E3779B97F4A7C15
    key = finalised((2 * seed + view + 1 + golden) % 2**64)
    return finalised((finalised((key + sample * golden) % 2**64) + (position + 1) * golden) % 2**64)


def sample_key(image):
    """What a sample is drawn by: 64 bits of BLAKE2b (RFC 7693) over its shape, type and little-endian bytes."""
    kind = repr((image.shape, image.dtype.name)).encode()
    content = image.astype(image.dtype.newbyteorder("<")).tobytes()
    return int.from_bytes(hashlib.blake2b(kind + content, digest_size=8).digest(), "little") or 1


def chosen(rows, columns, stride, m, seed, sample, view):
    """Positions that are coded: every stride-th row and column; of these the m smallest hashes (None: all)."""
    lattice = [r * columns + c for r in range(0, rows, stride) for c in range(0, columns, stride)]
    if m is None:
        return lattice
    return sorted(sorted(lattice, key=lambda i: position_hash(seed, sample, i, view))[:m])


def only(A, positions):
    """The codes A (K, n) at these positions; the others have none."""
    out = np.zeros_like(A)
    out[:, positions] = A[:, positions]
    return out


# -------------------------------------------------------------------------------------------------- whitening


def patch_moment(removed):
    """Σ_i x̄_i x̄_iᵀ in squared units, an exact integer matrix of Python integers: (p, p)."""
    flat = removed.reshape(-1, removed.shape[-1]).astype(object)
    return flat.T.dot(flat)


def covariance(removed, is_float):
    """Appendix C: Σ = 1/N Σ_i x̄_i x̄_iᵀ, uncentred, over all patches, for pixels in [0, 1]: (p, p)."""
    number = removed.size // removed.shape[-1]
    factor = unit(is_float) ** 2 / number
    return np.array([[float(factor * s) for s in row] for row in patch_moment(removed)])


def whitening(cov, ridge):
    """Appendix C: W = (λI + Σ)^(-1/2) and its inverse (λI + Σ)^(1/2), by eigendecomposition."""
    values, vectors = np.linalg.eigh(ridge * np.eye(len(cov)) + cov)
    return vectors @ np.diag(values**-0.5) @ vectors.T, vectors @ np.diag(values**0.5) @ vectors.T


def ceil_log2(x):
    """Smallest e with x <= 2^e, exactly."""
    mantissa, exponent = math.frexp(x)
    return exponent - 1 if mantissa == 0.5 else exponent


def integer_whiten(W):
    """W on the integer grid of b bits, p 2^16 2^b <= 2^53, so that float64 products are exact (2a)."""
    bits = min(28, 37 - ceil_log2(len(W)))
    return np.rint(W * 2.0 ** (bits - ceil_log2(np.abs(W).max()))).astype(np.int64)


def grid_scale(p):
    """s = floor(4096 - sqrt(p) / 2): s² and the rounding of p pixels stay within 2^24 (2a)."""
    half_root = 0  # ceil(sqrt(p) / 2)
    while 4 * half_root**2 < p:
        half_root += 1
    return 4096 - half_root


def unit_grid(removed, Wint, min_contrast, is_float):
    """x = W x̄ / |W x̄| (section 2) as rint(s x), and which patches are constant: (N, p), (N,).

    Products are exact; the norm is the float64 sum of squares in pixel order. Constant: the root mean square
    of x̄ is below min_contrast grey levels, or nothing is left at all.
    """
    removed = removed.reshape(-1, removed.shape[-1])
    N, p = removed.shape
    s = grid_scale(p)
    floor = p * (Fraction(str(min_contrast)) * grey_level(is_float)) ** 2
    grid, constant = np.zeros((N, p), dtype=np.int64), np.zeros(N, dtype=bool)
    for i in range(N):
        m = [int(v) for v in removed[i]]
        y = [sum(int(w) * v for w, v in zip(row, m, strict=True)) for row in Wint]
        assert all(abs(v) <= 2**53 for v in y)
        if sum(v * v for v in m) < floor or not any(y):
            constant[i] = True
            continue
        total = 0.0
        for v in y:
            total = total + float(v) * float(v)
        norm = math.sqrt(total)
        grid[i] = [round(s * (float(v) / norm)) for v in y]  # round(), like rint, takes halves to even
    return grid, constant


# ------------------------------------------------------------------------------------------------------ codes


def codes(grid, atoms, feature, threshold, constant, constant_patch, zero_code, euclidean=False):
    """Section 3: binary codes A (K, n) of n grid patches over K grid atoms; a column of zeros is left out.

    gq: α_k = 1 iff cos(x, φ_k) >= t, that is x · φ_k >= ceil(t s²), t the decimal fraction it is written as.
    vq: α_k = 1 for the nearest atom: the largest cosine, or the largest 2 x · φ_k - |φ_k|². Ties go to the
    lowest atom; patches that are constant, or that no atom reaches (gq), follow their policies (2a).
    """
    grid, atoms = np.asarray(grid, dtype=np.int64), np.asarray(atoms, dtype=np.int64)
    K, p = atoms.shape
    cut = math.ceil(Fraction(str(threshold)) * grid_scale(p) ** 2)
    A = np.zeros((K, len(grid)), dtype=np.int64)
    for i, x in enumerate(grid):
        dots = np.einsum("kp,p->k", atoms, x).tolist()  # of integers: exact
        scores = dots
        if feature == "vq" and euclidean:
            scores = [2 * dot - int((atom**2).sum()) for dot, atom in zip(dots, atoms, strict=True)]
        best = scores.index(max(scores))
        if constant[i]:
            active = [best] if constant_patch == "activate_best" else []
        elif feature == "vq":
            active = [best]
        else:
            active = [k for k in range(K) if dots[k] >= cut]
            if not active and zero_code == "activate_best":
                active = [best]
        A[active, i] = 1
    return A


def sites(A, constant, constant_patch, zero_code):
    """Which patches of an image are sites, and so neighbours: bool (n,).

    As printed every patch is one, also where α = 0: "keep". "leave_out" takes such patches away instead, those that are
    constant and those that no atom reaches each by a policy of their own.
    """
    return np.array(
        [
            bool(A[:, i].any()) or (constant_patch if constant[i] else zero_code) == "keep"
            for i in range(A.shape[1])
        ]
    )


def spherical_kmeans_round(grid, atoms, left_out=None):
    """One spherical round of Algorithm 1 (appendix D): labels (-1: left out), integer sums, counts."""
    grid, atoms = np.asarray(grid, dtype=np.int64), np.asarray(atoms, dtype=np.int64)
    labels = np.full(len(grid), -1)
    sums, counts = np.zeros(atoms.shape, dtype=np.int64), np.zeros(len(atoms), dtype=np.int64)
    for i, x in enumerate(grid):
        if left_out is None or not left_out[i]:
            dots = np.einsum("kp,p->k", atoms, x).tolist()  # of integers: exact
            labels[i] = dots.index(max(dots))
            sums[labels[i]] += x
            counts[labels[i]] += 1
    return labels, sums, counts


# ------------------------------------------------------------------------------------------------- statistics


def neighbours(rows, columns, d, kept):
    """Section 2: n(ij) = {lm: |i - l| <= d, |j - m| <= d} without itself, kept positions only: n lists."""
    return [
        [j for j in within(rows, columns, i, d) if j != i and kept[j]] if kept[i] else []
        for i in range(rows * columns)
    ]


def first_order(near):
    """D of optimisation 1: for the kth unordered pair {i, j}, d_ki = 1 and d_kj = -1: (n, pairs)."""
    pairs = [(i, j) for i, js in enumerate(near) for j in js if i < j]
    D = np.zeros((len(near), len(pairs)), dtype=np.int64)
    for k, (i, j) in enumerate(pairs):
        D[i, k], D[j, k] = 1, -1
    return D


def second_order(near):
    """D of optimisation 2: D_ii = 1, D_ji = -w(i, j) = -1/deg(i); a lone position has no column: (n, m)."""
    centres = [i for i, js in enumerate(near) if js]
    D = np.full((len(near), len(centres)), Fraction(0), dtype=object)
    for k, i in enumerate(centres):
        D[i, k] = Fraction(1)
        for j in near[i]:
            D[j, k] = Fraction(-1, len(near[i]))
    return D


def operator_2(near):
    """rint(2^20 D Dᵀ) of the second order, rounded from the exact fractions: (n, n)."""
    D, n = second_order(near), len(near)
    L = np.zeros((n, n), dtype=np.int64)
    for i in range(n):
        for j in range(n):
            support = [k for k in range(D.shape[1]) if D[i, k] and D[j, k]]
            L[i, j] = round(SCALE_2 * sum((D[i, k] * D[j, k] for k in support), Fraction(0)))
    return L


def relation(near):
    """W: the symmetric 0/1 neighbour relation without self: (n, n)."""
    W = np.zeros((len(near), len(near)), dtype=np.int64)
    for i, js in enumerate(near):
        W[i, js] = 1
    return W


def whole_weight(n, most):
    """n / (n - 1)² in whole steps of 2^-(30 + bits of the most patches that an image has), halves up, and 1 over the step."""
    scale = 2 ** (30 + most.bit_length())
    return (math.floor(scale * Fraction(n, (n - 1) ** 2) + Fraction(1, 2)) if n > 1 else 0), scale


def statistics(codes_of_images, rows, columns, context, order, sites_of_images=None, most=None):
    """Design, section 1: the sums over samples, from A (K, rows x columns) of every image; all integers.

    sites_of_images : bool (rows x columns,) of every image (`sites`); None: the patches with an active atom.
    context_scatter is Σ A D Dᵀ Aᵀ of eq. (3), for order 2 on the grid of 2^20 (`scale`), or for whole images each first-order
    matrix times `whole_weight`. sites : of each image whose n is not 0, for whole images. most : patches that an image can have.
    """
    K = len(codes_of_images[0])
    zero = np.zeros((K, K), dtype=np.int64)
    rounded = order == 2 and context == "whole"
    out = {
        "n_samples": 0, "n_positions": 0, "activity": np.zeros(K, dtype=np.int64), "second_moment": zero,
        "context_scatter": zero, "cooccurrence": zero, "scale": 1 if order == 1 else SCALE_2, "sites": [],
        "most": most or rows * columns,
    }  # fmt: skip
    for number, A in enumerate(codes_of_images):
        kept = A.sum(axis=0) > 0 if sites_of_images is None else sites_of_images[number]
        near = neighbours(rows, columns, context, kept)
        if order == 1 or rounded:
            D = first_order(near)
            operator = D @ D.T
        else:
            operator = operator_2(near)
        if rounded:
            weight, out["scale"] = whole_weight(int(kept.sum()), out["most"])
            operator = weight * operator.astype(object)
            out["sites"] = out["sites"] + [int(kept.sum())] * bool(kept.any())
        out["n_samples"] += 1
        out["n_positions"] += int(kept.sum())
        out["activity"] = out["activity"] + A.sum(axis=1)
        out["second_moment"] = out["second_moment"] + A @ A.T
        out["context_scatter"] = out["context_scatter"] + A @ operator @ A.T
        out["cooccurrence"] = out["cooccurrence"] + A @ relation(near) @ A.T
    return out


# -------------------------------------------------------------------------- embedding, representation, voting


def solve(context_scatter, second_moment, n_positions, activity, moment, n_components, tolerance=None):
    """Eq. (3): min ‖PAD‖² subject to P V Pᵀ = I; P = Uᵀ V^(-1/2), U the trailing eigenvectors of Q.

    Both matrices are divided by N; V is the second moment or, "centred", less a aᵀ / N². Directions where V
    is at most tolerance (None: K eps) times its largest eigenvalue are projected out. Returns P
    (components x K), the eigenvalues ascending, and the rank of V.
    """
    N, K = float(n_positions), len(second_moment)
    C = np.asarray(context_scatter, dtype=np.float64) / N
    V = np.asarray(second_moment, dtype=np.float64) / N
    if moment == "centred":
        mean = np.asarray(activity, dtype=np.float64) / N
        V = V - np.outer(mean, mean)
    values, vectors = np.linalg.eigh(V)
    null = values <= (K * np.finfo(np.float64).eps if tolerance is None else tolerance) * values.max()
    root = vectors[:, ~null] / np.sqrt(values[~null])  # V^(-1/2) on its range, up to a rotation
    Q = root.T @ C @ root
    eigenvalues, U = np.linalg.eigh((Q + Q.T) / 2)
    return U[:, :n_components].T @ root.T, eigenvalues[:n_components], int((~null).sum())


def l2(vector):
    """The vector over its length; a zero vector stays zero."""
    norm = math.sqrt(sum(float(v) ** 2 for v in vector))
    return vector / norm if norm > 0 else np.zeros_like(vector)


def transform(codes_of_images, P, rows, columns, ks, stride):
    """Section 2: β = P f(x) / |·|, z = L2 normalize pw(avg pool(B; ks, stride)): (B, rows', columns', L)."""
    out = []
    down, right = range(0, rows - ks + 1, stride), range(0, columns - ks + 1, stride)
    for A in codes_of_images:
        beta = np.array([l2(P @ A[:, i].astype(np.float64)) for i in range(rows * columns)])
        beta = beta.reshape(rows, columns, len(P))
        windows = [[beta[r + i, c + j] for i in range(ks) for j in range(ks)] for r in down for c in right]
        out.append([l2(sum(window) / ks**2) for window in windows])
    return np.array(out).reshape(len(out), len(down), len(right), len(P))


def soft_knn(train_z, train_y, test_z, k, T, vote):
    """Appendix J: the class of every test vector by its k nearest training vectors (cosine).

    hard: each neighbour has one vote; linear, as printed: cos / k (the softmax over classes cannot change the
    winner); exp, as in the code in use: exp(cos / T). Ties of neighbours go to the lowest training index,
    ties of classes to the lowest class.
    """
    train = [l2(np.asarray(z, dtype=np.float64)) for z in train_z]
    winners = []
    for z in test_z:
        x = l2(np.asarray(z, dtype=np.float64))
        cosines = [float(sum(a * b for a, b in zip(x, other, strict=True))) for other in train]
        nearest = sorted(range(len(train)), key=lambda i: (-cosines[i], i))[:k]
        weight = {"hard": lambda c: 1.0, "linear": lambda c: c / k, "exp": lambda c: math.exp(c / T)}[vote]
        votes = [0.0] * (max(train_y) + 1)
        for i in nearest:
            votes[train_y[i]] += weight(cosines[i])
        winners.append(votes.index(max(votes)))
    return np.array(winners)


def leading(train, rows, m, whiten):
    """Jégou and Chum 2012, with a power: unit vectors, the mean off, along principal axes, over standard deviation^whiten."""
    unit = [np.array([l2(np.asarray(z, dtype=np.float64)) for z in some]) for some in (train, rows)]
    mean = unit[0].mean(axis=0)
    _, deviations, axes = np.linalg.svd((unit[0] - mean) / math.sqrt(len(train)), full_matrices=False)
    return (unit[1] - mean) @ axes[:m].T / deviations[:m] ** whiten


def in_time(length, order):
    """SMT 2018, eq. 8: a column of D for each a_t - a_{t+1}, or 2 a_t - a_{t-1} - a_{t+1}, twice the second difference."""
    D = np.zeros((length, length - order), dtype=object)
    for t in range(length - order):
        if order == 1:
            D[t, t], D[t + 1, t] = 1, -1
        else:
            D[t, t], D[t + 1, t], D[t + 2, t] = -1, 2, -1
    return D


def sums_in_time(shots, order):
    """SMT 2018, eq. 8, over whole shots, A (K, T) each that have a difference: A Aᵀ, A D Dᵀ Aᵀ, A 1 and the frames."""
    shots = [A for A in shots if A.shape[1] > order]
    D = [in_time(A.shape[1], order).astype(np.float64) / order for A in shots]
    return (
        sum(A @ A.T for A in shots),
        sum((A @ d) @ (A @ d).T for A, d in zip(shots, D, strict=True)),
        sum(A.sum(axis=1) for A in shots),
        sum(A.shape[1] for A in shots),
    )


def of_listed(weights, order):
    """The first of 1 + k sites against the others: a column for each with a weight, or one, the site minus their weighted sum."""
    if order == 2:
        return np.array([[Fraction(1)], *([-Fraction(float(w))] for w in weights)], dtype=object)
    there = [1 + at for at, w in enumerate(weights) if w]
    D = np.zeros((1 + len(weights), len(there)), dtype=object)
    for k, at in enumerate(there):
        D[0, k], D[at, k] = 1, -1
    return D


def autoencoder_objective(Z, X, gram, decoder, ridge):
    """Theorem 5 of the kernel paper as printed, ‖Q - X‖² + λ Tr(Z K_X⁻¹ Zᵀ + Q K_Z⁻¹ Qᵀ), of Z (h, n) and X (d, n)."""
    n = Z.shape[1]
    K = np.array([[decoder(Z[:, i], Z[:, j]) for j in range(n)] for i in range(n)])
    Q = X @ np.linalg.solve(K + ridge * np.eye(n), K)
    # Q K_Z⁻¹ Qᵀ = Q (K_Z + λ)⁻¹ Xᵀ, also where K_Z has no inverse
    traces = np.trace(Z @ np.linalg.solve(gram, Z.T)) + np.trace(
        Q @ np.linalg.solve(K + ridge * np.eye(n), X.T)
    )
    return float(((Q - X) ** 2).sum() + ridge * traces)


def threshold_code(x, atoms, t):
    """f_gq of SMT 2023, section 3: 1 for every atom whose cosine with x is at least t."""
    return np.array([float(x @ a / np.linalg.norm(x) / np.linalg.norm(a) >= t) for a in atoms])


def nearest_code(x, atoms):
    """f_vq: 1 for the nearest atom, the first of equally near ones."""
    code = np.zeros(len(atoms))
    code[min(range(len(atoms)), key=lambda i: float(((x - atoms[i]) ** 2).sum()))] = 1
    return code


def positive_code(x, atoms, penalty, sweeps=400):
    """SMT 2018, eq. 10, by coordinate descent over unit atoms until nothing moves."""
    code = np.zeros(len(atoms))
    for _ in range(sweeps):
        for i, a in enumerate(atoms):
            rest = x - code @ atoms + code[i] * a
            code[i] = max(0.0, float(a @ rest) - penalty)
    return code


def inverse_objective(P, beta, code, penalty):
    """SMT 2018, eq. 6: ‖β - P α‖² + λ zᵀα with z_j = ‖p_j‖, of α >= 0."""
    return float(((beta - P @ code) ** 2).sum() + penalty * (np.linalg.norm(P, axis=0) * code).sum())


def inverse_gap(P, beta, code, penalty):
    """How far α can be above the minimum of eq. 6, over the objective.

    For θ with P_jᵀθ <= λ z_j for all j, ‖r‖² >= θᵀr - ‖θ‖²/4 gives the lower bound θᵀβ - ‖θ‖²/4; θ is the longest
    multiple of 2 (β - P α) of that kind, up to the best multiple.
    """
    rest, z = beta - P @ code, np.linalg.norm(P, axis=0)
    meets = P.T @ rest
    allowed = [penalty * z[j] / (2 * meets[j]) for j in range(len(z)) if meets[j] > 0 and z[j] > 0]
    length = rest @ rest
    scale = min([float(beta @ rest / length) if length > 0 else 1.0, *allowed])
    bound = scale * 2 * (rest @ beta) - scale**2 * length
    objective = inverse_objective(P, beta, code, penalty)
    return (objective - bound) / objective if objective > 0 else 0.0


def pursuit_code(x, atoms, k):
    """Orthogonal matching pursuit (Pati et al. 1993), by least squares anew at every step."""
    code, taken = np.zeros(len(atoms)), []
    for _ in range(k):
        rest = x - code @ atoms
        taken.append(int(np.argmax(np.abs(atoms @ rest))))
        code[:] = 0
        code[taken] = np.linalg.lstsq(atoms[taken].T, x, rcond=None)[0]
    return code


def largest_angle(P, V, C):
    """Angle in degrees between the rows of P and the eigenvectors of C p = μ V p with the smallest μ, in the metric of V."""
    _, vectors = scipy.linalg.eigh(C, V)
    wanted = vectors[:, : len(P)]
    found = P.T @ np.linalg.inv(np.linalg.cholesky(P @ V @ P.T)).T
    cosines = np.linalg.svd(wanted.T @ V @ found, compute_uv=False)
    return float(np.degrees(np.arccos(np.clip(cosines.min(), -1, 1))))


# ------------------------------------------------------------------------------------------------ binary concepts
# "Unsupervised learning of categories": equations (2) and (3), p x p kernels as printed.


def centred_kernel(rows):
    """H X Xᵀ H with H = I - 11ᵀ/p (section 2.1)."""
    p = len(rows)
    H = np.eye(p) - np.ones((p, p)) / p
    return H @ rows @ rows.T @ H


def concept_weights(S, X):
    """π >= 0 of least ‖S̄ΠS̄ᵀ - X̄X̄ᵀ‖² at fixed S (equation 3): least squares over the entries of the kernels."""
    kernels = np.stack([centred_kernel(s[:, None].astype(float)).ravel() for s in S.T], 1)
    weights, _ = scipy.optimize.nnls(kernels, centred_kernel(X).ravel())
    return weights


def concept_loss(S, X):
    """Equation (3) with the weights fitted, over ‖X̄X̄ᵀ‖²."""
    K, S = centred_kernel(X), S.astype(float)
    Q = centred_kernel(S * np.sqrt(concept_weights(S, X)))
    return float(np.sum((Q - K) ** 2) / np.sum(K**2))


def best_concepts(X, b):
    """The b concepts of least equation (3), weights fitted, among all b-subsets of {0, 1}^p up to complements: (S, loss).

    With A_ac = (s̄_aᵀs̄_c)² and g_a = s̄_aᵀX̄X̄ᵀs̄_a the loss falls by the largest 2gᵀπ - πᵀAπ over π >= 0: gᵀA⁻¹g on the
    support that is best among those with a positive solution. No entry of A is below 0, so that two sets together gain no
    more than both alone: a set whose gain and the largest gain of what may still come are below the best found is left out.
    """
    K = centred_kernel(X)
    p = len(K)
    sides = np.array([[i >> k & 1 for k in range(p)] for i in range(1, 2 ** (p - 1))], float)
    centred = sides - sides.mean(1, keepdims=True)
    A, g = (centred @ centred.T) ** 2, np.einsum("ai,ij,aj->a", centred, K, centred)
    alone = g**2 / np.diag(A)
    order = np.argsort(-alone)
    sides, A, g, alone = sides[order], A[np.ix_(order, order)], g[order], alone[order]

    found = [0.0, []]

    def grow(chosen, gain):
        after = np.arange(chosen[-1] + 1 if chosen else 0, len(g))
        gains = np.maximum(alone[after], gain)
        for size in range(1, len(chosen) + 1):
            for some in itertools.combinations(chosen, size):
                support = np.column_stack([np.tile(some, (len(after), 1)), after])
                matrices = A[support[:, :, None], support[:, None, :]]
                solved = np.linalg.solve(matrices, g[support][:, :, None])[:, :, 0]
                good = (solved >= 0).all(1)
                gains = np.where(good, np.maximum(gains, (solved * g[support]).sum(1)), gains)
        if len(chosen) == b - 1:
            at = int(np.argmax(gains))
            if gains[at] > found[0]:
                found[:] = [gains[at], [*chosen, int(after[at])]]
            return
        left = b - len(chosen) - 1
        for at in np.argsort(-gains, kind="stable"):
            following = int(after[at]) + 1
            if following + left <= len(g) and gains[at] + left * alone[following] > found[0]:
                grow([*chosen, following - 1], gains[at])

    grow([], 0.0)
    norm = float(np.sum(K**2))
    return sides[found[1]].T.astype(np.uint8), (norm - found[0]) / norm


# -------------------------------------------------------------------------------- spike-and-slab sparse coding (S3C)
# Goodfellow, Courville and Bengio 2012: the posterior by enumeration, from the definition of the model alone.


def log_normal(x, mean, cover):
    away = x - mean
    _, size = np.linalg.slogdet(2 * np.pi * cover)
    return -0.5 * size - 0.5 * away @ np.linalg.solve(cover, away)


class ExactPosterior:
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


def spike_slab_energy(v, h, s, W, mu, alpha, bias, beta):
    """E_Q[log p(v, h, s)] + H(Q) of one v, term by term, for the Q of `ExactPosterior.divergence`."""
    gains = np.einsum("di,d,di->i", W, beta, W)
    on = alpha + gains  # precision of an active slab
    second = h * (s**2 + 1 / on)  # E[h s²]
    mean = h * s
    away = v - W @ mean
    likelihood = 0.5 * np.log(beta / (2 * np.pi)).sum()
    likelihood += -0.5 * (beta * away**2).sum() - 0.5 * (gains * (second - mean**2)).sum()
    spikes = (h * bias - np.log1p(np.exp(bias))).sum()
    active = 0.5 * np.log(alpha / (2 * np.pi)) - 0.5 * alpha * ((s - mu) ** 2 + 1 / on)
    idle = 0.5 * np.log(alpha / (2 * np.pi)) - 0.5  # a slab at its prior, N(0, 1/α)
    slabs = (h * active + (1 - h) * idle).sum()
    entropy = -(scipy.special.xlogy(h, h) + scipy.special.xlogy(1 - h, 1 - h)).sum()
    entropy += (
        h * 0.5 * np.log(2 * np.pi * np.e / on) + (1 - h) * 0.5 * np.log(2 * np.pi * np.e / alpha)
    ).sum()
    return likelihood + spikes + slabs + entropy


def spike_slab_one_by_one(v, W, mu, alpha, bias, beta, sweeps):
    """ŝ_i, then ĥ_i, of one unit after another, each where the energy is highest (section 4): returns ĥ and ŝ.

    With r what the other units leave of v: ŝ_i = (α_i μ_i + W_iᵀ β r) / (α_i + W_iᵀ β W_i), and the log-odds of ĥ_i are
    the energy at h_i = 1 less that at h_i = 0.
    """
    h, s = 1 / (1 + np.exp(-bias)), np.array(mu, float)
    for _ in range(sweeps):
        for i in range(len(mu)):
            rest = v - W @ (h * s) + W[:, i] * h[i] * s[i]
            gain, pull = W[:, i] @ (beta * W[:, i]), W[:, i] @ (beta * rest)
            s[i] = (alpha[i] * mu[i] + pull) / (alpha[i] + gain)
            odds = bias[i] + 0.5 * np.log(alpha[i] / (alpha[i] + gain)) - 0.5 * alpha[i] * mu[i] ** 2
            odds += 0.5 * (alpha[i] + gain) * s[i] ** 2
            h[i] = 1 / (1 + np.exp(-odds))
    return h, s


def draw_spike_slab(rng, n, W, mu, alpha, bias, beta):
    """Rows from the generative process: returns v (n, D), h and s (n, N)."""
    h = rng.random((n, len(mu))) < 1 / (1 + np.exp(-bias))
    s = rng.normal(h * mu, alpha**-0.5)
    v = rng.normal((h * s) @ W.T, beta**-0.5)
    return v, h, s
