// Sums over lists of atoms: the atoms of patch i are indices[indptr[i]] to indices[indptr[i + 1] - 1], ascending.
//
// A warp takes a patch at a time, so that its lanes share one list, and goes on with the patch that lies a grid further.
// All sums are whole numbers added by atomic operations: in any order the same bits.

typedef long long int64;
typedef unsigned short atom_t;

const unsigned WARP = 32;

__device__ inline void add_to(int *sum, int64 amount) { atomicAdd(sum, (int)amount); }

// two's complement: adding modulo 2^64 is the same for signed and unsigned numbers
__device__ inline void add_to(int64 *sum, int64 amount)
{
    atomicAdd((unsigned long long *)sum, (unsigned long long)amount);
}

__device__ inline unsigned lane_number() { return threadIdx.x % WARP; }

__device__ inline int64 warp_number()
{
    return (int64)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
}

__device__ inline int64 warp_count() { return (int64)gridDim.x * (blockDim.x / WARP); }

// Number t of the pairs i <= j < length, in an order without idle lanes: rows i and length - 1 - i of the triangle have
// length + 1 pairs between them, so they are laid side by side. Where length is odd, the middle row has no partner and
// false is returned for the second half of it. There are (length + 1) / 2 * (length + 1) numbers: below 2^32 up to 65,536.
__device__ inline bool pair_at(unsigned t, unsigned length, unsigned &i, unsigned &j)
{
    const unsigned row = t / (length + 1), column = t % (length + 1);
    if (column < length - row) {
        i = row;
        j = row + column;
        return true;
    }
    i = length - 1 - row;
    j = i + (column - (length - row));
    return i != row;
}

// out[a, b] += weight of every patch with both atoms, a <= b and a < rows; out has `stride` columns.
template <typename T>
__device__ inline void add_pairs(
    T *out, int64 rows, int64 stride, const int64 *indptr, const atom_t *indices, const int64 *weights, int64 patches)
{
    for (int64 patch = warp_number(); patch < patches; patch += warp_count()) {
        const int64 amount = weights ? weights[patch] : 1;
        if (amount == 0)
            continue;
        const atom_t *atoms = indices + indptr[patch];
        const unsigned length = (unsigned)(indptr[patch + 1] - indptr[patch]);
        const unsigned pairs = (length + 1) / 2 * (length + 1);
        for (unsigned t = lane_number(); t < pairs; t += WARP) {
            unsigned i, j;
            if (pair_at(t, length, i, j) && atoms[i] < rows)
                add_to(out + atoms[i] * stride + atoms[j], amount);
        }
    }
}

extern "C" __global__ void add_pairs_32(
    int *out, int64 rows, int64 stride, const int64 *indptr, const atom_t *indices, int64 patches)
{
    add_pairs(out, rows, stride, indptr, indices, (const int64 *)0, patches);
}

extern "C" __global__ void add_pairs_64(
    int64 *out, int64 rows, int64 stride, const int64 *indptr, const atom_t *indices, int64 patches)
{
    add_pairs(out, rows, stride, indptr, indices, (const int64 *)0, patches);
}

extern "C" __global__ void add_weighted_pairs_32(
    int *out, int64 rows, int64 stride, const int64 *indptr, const atom_t *indices, const int64 *weights, int64 patches)
{
    add_pairs(out, rows, stride, indptr, indices, weights, patches);
}

extern "C" __global__ void add_weighted_pairs_64(
    int64 *out, int64 rows, int64 stride, const int64 *indptr, const atom_t *indices, const int64 *weights, int64 patches)
{
    add_pairs(out, rows, stride, indptr, indices, weights, patches);
}

// out[i / step, a] += weight of patch i, for each of its atoms a; out has `stride` columns.
template <typename T>
__device__ inline void add_counts(
    T *out, int64 stride, const int64 *indptr, const atom_t *indices, const int64 *weights, int64 patches, int64 step)
{
    for (int64 patch = warp_number(); patch < patches; patch += warp_count()) {
        const int64 amount = weights ? weights[patch] : 1;
        if (amount == 0)
            continue;
        T *counts = out + patch / step * stride;
        for (int64 entry = indptr[patch] + lane_number(); entry < indptr[patch + 1]; entry += WARP)
            add_to(counts + indices[entry], amount);
    }
}

extern "C" __global__ void add_counts_32(
    int *out, int64 stride, const int64 *indptr, const atom_t *indices, int64 patches, int64 step)
{
    add_counts(out, stride, indptr, indices, (const int64 *)0, patches, step);
}

extern "C" __global__ void add_counts_64(
    int64 *out, int64 stride, const int64 *indptr, const atom_t *indices, int64 patches, int64 step)
{
    add_counts(out, stride, indptr, indices, (const int64 *)0, patches, step);
}

extern "C" __global__ void add_weighted_counts_64(
    int64 *out, int64 stride, const int64 *indptr, const atom_t *indices, const int64 *weights, int64 patches, int64 step)
{
    add_counts(out, stride, indptr, indices, weights, patches, step);
}

// dense[a, i - first] = 1 for each atom a of patches first to first + patches - 1; the rest stays what it is, zero.
extern "C" __global__ void mark_atoms(
    signed char *dense, int64 stride, const int64 *indptr, const atom_t *indices, int64 first, int64 patches)
{
    for (int64 patch = warp_number(); patch < patches; patch += warp_count()) {
        const int64 last = indptr[first + patch + 1];
        for (int64 entry = indptr[first + patch] + lane_number(); entry < last; entry += WARP)
            dense[indices[entry] * stride + patch] = 1;
    }
}
