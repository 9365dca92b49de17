"""Bodies of kernels on any array module, as plain as they can be: what compiled bodies and CUDA must return, to the bit."""

from smtdist.kernels.device import array_module
from smtdist.kernels.generic import patches, scatter
from smtdist.kernels.generic.scatter import add_upper, dense, from_atom
from smtdist.kernels.representation import unit_rows
from smtdist.kernels.types import Codes
from smtdist.kernels.whitening import square_sum

__all__ = ["from_atom"]

SLICE_BYTES = BLOCK_BYTES = 64 << 20


def centred_patches(grid, geometry, mean, reach, offset, at=None):
    """Return float64 (p, B n), or (p, B m) of the positions `at` (B, m)."""
    found = patches.centred_patches(grid, geometry, mean, reach, offset, at)
    if mean == "context":
        pixels = found.reshape(geometry.patch**2, geometry.channels, -1)
        for pixel, values in enumerate(pixels):
            means = _context_mean(grid, geometry, reach, *divmod(pixel, geometry.patch))
            values -= patches._chosen(means, at)
    return found


def _context_mean(grid, geometry, reach, row, column):
    """Mean of one pixel over the neighbouring patches, (B, R, C, channels): a box sum by cumulative sums."""
    xp, total = array_module(grid), patches.integral(grid)
    top, bottom = patches._interval(xp, geometry.rows, reach)
    left, right = patches._interval(xp, geometry.columns, reach)
    lower, upper = total[:, bottom + row], total[:, top + row]
    box = (
        lower[:, :, right + column]
        - upper[:, :, right + column]
        - lower[:, :, left + column]
        + upper[:, :, left + column]
    )
    count = ((bottom - top)[:, None] * (right - left)[None, :])[None, :, :, None]
    return patches._rounded(box, count)


def moments(centred, images):
    """Return Σ m mᵀ over the patches of each image, int64 (B, p, p)."""
    parts = centred.reshape(len(centred), images, -1).transpose(1, 0, 2).astype("int64")
    return parts @ parts.transpose(0, 2, 1)


def unit_grid(centred, whiten, floor_sum, scale):
    """Return float32 (p, N) and bool (N,); see `smtdist.kernels.whitening`."""
    xp = array_module(centred)
    y = centred if whiten is None else whiten @ centred
    squares = square_sum(y)
    constant = (square_sum(centred) < floor_sum) | (squares == 0)
    norm = xp.sqrt(squares)
    norm[constant] = 1.0
    grid = (xp.rint(scale * (y / norm)) + 0.0).astype(xp.float32)  # no negative zeros
    grid[:, constant] = 0.0
    return grid, constant


def gq_codes(grid, atoms, cut, constant, policy, images=1):
    """Return every atom whose dot product reaches `cut`; see `smtdist.kernels.codes`."""
    best_constant, best_zero = policy
    xp = array_module(grid)
    n, n_atoms = grid.shape[1], len(atoms)
    counts, parts = [xp.zeros(1, dtype=xp.int64)], [xp.zeros(0, dtype=xp.uint16)]
    step = max(1, SLICE_BYTES // (4 * n_atoms))
    for start in range(0, n, step):
        dots = grid[:, start : start + step].T @ atoms.T
        active = dots >= cut
        flat = constant[start : start + step]
        active[flat] = False
        lone = ~active.any(axis=1)
        lone &= (flat & best_constant) | (~flat & best_zero)
        active[lone, dots[lone].argmax(axis=1)] = True
        counts.append(active.sum(axis=1).astype(xp.int64))
        parts.append(xp.nonzero(active)[1].astype(xp.uint16))
    return Codes(xp.cumsum(xp.concatenate(counts)), xp.concatenate(parts), n_atoms)


def blocks(codes, dtype, most=2**63):
    """Yield (start, stop, dense block) over the patches, of at most so many."""
    item = 4 if dtype == "float32" else 8
    step = max(1, min(most, BLOCK_BYTES // (item * codes.n_atoms)))
    for start in range(0, codes.n_patches, step):
        stop = min(start + step, codes.n_patches)
        yield start, stop, dense(codes, start, stop, dtype)


def add_weighted_moment(out, codes, weights):
    """Add Σ w_i a_i a_iᵀ of weights below 2^53, of so few patches at a time that float64 is exact."""
    largest = max(1, int(abs(weights).max())) if len(weights) else 1
    for start, stop, block in blocks(codes, "float64", 2**53 // largest):
        part = weights[start:stop]
        if bool((part != 0).any()):
            add_upper(out, block * part[:, None], block)


def add_outer_of(out, counts, weights, most=None):
    """Add Σ_b w_b s_b s_bᵀ of counts (B, K)."""
    scatter.add_outer_of(out, counts, weights)


def add_activity(out, codes):
    """Add Σ a_i to int64 `out`."""
    xp = array_module(out)
    out += xp.bincount(codes.indices, minlength=codes.n_atoms)


def add_weighted_activity(out, codes, weights):
    """Add Σ w_i a_i to int64 `out`."""
    for start, stop, block in blocks(codes, "float64"):
        out += (weights[start:stop].astype("float64") @ block).astype(out.dtype)


def add_second_moment(out, codes):
    """Add Σ a_i a_iᵀ; a block has fewer than 2^24 patches, so float32 is exact."""
    for _, _, block in blocks(codes, "float32"):
        add_upper(out, block, block)


def image_counts(codes, images):
    """Return s = A 1 of every image, int32 (B, K)."""
    xp = array_module(codes.indices)
    counts = xp.zeros((images, codes.n_atoms), dtype=xp.int32)
    step = codes.n_patches // images
    ends = codes.indptr[::step].tolist()
    for image in range(images):
        part = codes.indices[ends[image] : ends[image + 1]]
        counts[image] = xp.bincount(part, minlength=codes.n_atoms)
    return counts


def embed(codes, components_t, half):
    """Return float32 (N, L); the j-th atom of every patch is added in round j, and those from `half` on apart."""
    xp = array_module(components_t)
    above = xp.concatenate([xp.zeros(1, xp.int64), xp.cumsum(codes.indices >= half)])
    cuts = codes.indptr[1:] - (above[codes.indptr[1:]] - above[codes.indptr[:-1]])
    result = _sums(codes, components_t, codes.indptr[:-1], cuts)
    result += _sums(codes, components_t, cuts, codes.indptr[1:])
    return unit_rows(result)


def _sums(codes, components_t, firsts, lasts):
    """Return the sum of the rows of components of entries first to last of each patch."""
    xp = array_module(components_t)
    counts = lasts - firsts
    result = xp.zeros((codes.n_patches, components_t.shape[1]), dtype=xp.float32)
    rounds = int(counts.max()) if codes.n_patches else 0
    for entry in range(rounds):
        patches = xp.nonzero(counts > entry)[0]
        atoms = codes.indices[firsts[patches] + entry].astype(xp.int64)
        result[patches] += components_t[atoms]
    return result


def pool(grid, shape, size, stride, mirrored=False):
    """Return float32 (B, rows', columns', L); `mirrored`: of the mirror images."""
    xp, grid = array_module(grid), grid[:, :, ::-1] if mirrored else grid
    down, across = (shape[0] - 1) * stride + 1, (shape[1] - 1) * stride + 1
    total = xp.zeros((grid.shape[0], *shape, grid.shape[3]), dtype=xp.float32)
    for row in range(size):
        for column in range(size):
            total += grid[:, row : row + down : stride, column : column + across : stride]
    total /= xp.float32(size * size)
    return unit_rows(total)
