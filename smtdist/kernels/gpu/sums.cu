// Sums over codes. All are whole numbers: in any order the same bits.

const int V_TILE = 128, V_WORDS = 16, V_STRIDE = 20;  // rows of a tile; words of a step, and of a row where it is held
const int V_THREADS = 128, V_BAND = 16, V_PIECES = V_WORDS / 4;
const int V_LOADS = 2 * V_TILE * V_PIECES / V_THREADS;

// 16 x 8 sums += popcount of 16 x 256 bits and 256 x 8 bits (PTX: mma.m16n8k256.and.popc). Words lie as in `multiply_bytes`, 32
// bits to each. Up to compute capability 9 this is one instruction; later cards would take eight and a hundred others.
#ifdef __CUDACC_RTC__
__device__ inline void multiply_bits(int *sums, const unsigned *left, const unsigned *right)
{
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
#else
    __trap();
#endif
}
#endif

struct Bits {
    __device__ static void multiply(int *sums, const unsigned *left, const unsigned *right)
    {
        multiply_bits(sums, left, right);
    }
};

struct Bytes {
    __device__ static void multiply(int *sums, const unsigned *left, const unsigned *right)
    {
        multiply_bytes(sums, left, right);
    }
};

__device__ inline Sixteen product_piece(
    const unsigned *left, const unsigned *right, int64 top, int64 beside, int64 atoms, int64 words, int64 first, int64 piece)
{
    const int64 side = piece / (V_TILE * V_PIECES), row = piece % (V_TILE * V_PIECES) / V_PIECES;
    const int64 atom = (side ? beside : top) + row;
    return *(const Sixteen *)((side ? right : left) + (atom < atoms ? atom : atoms - 1) * words + first + piece % V_PIECES * 4);
}

// out[a][b] += factor x the product of row a of `left` and row b of `right`, a <= b and a < rows; out has `stride` columns.
//
// Rows have `words` words, a multiple of 16, of bits or of bytes. A block of 4 warps has 128 x 128 sums, a warp 64 x 64; while
// it multiplies what is held it loads what comes next. Grid: for each band of 16 tile rows its tile columns from the band's
// first on, 16 blocks to a column, so that they share what the cache has; those below the diagonal end at once.
template <typename T, typename Kind>
__device__ inline void add_products(
    T *out, int64 rows, int64 stride, const unsigned *left, const unsigned *right, int64 atoms, int64 words, int64 factor)
{
    __shared__ Sixteen held[2][2][V_TILE * V_STRIDE / 4];
    const unsigned thread = threadIdx.x, lane = thread % WARP, group = lane / 4, quarter = lane % 4;
    const unsigned down = thread / WARP / 2 * 64, across = thread / WARP % 2 * 64;
    const int64 tiles = (atoms + V_TILE - 1) / V_TILE;
    int64 number = blockIdx.x, band = 0;
    while (number >= V_BAND * (tiles - band)) {
        number -= V_BAND * (tiles - band);
        band += V_BAND;
    }
    const int64 top = (band + number % V_BAND) * V_TILE, beside = (band + number / V_BAND) * V_TILE;
    if (top > beside || top >= rows)
        return;
    int sums[4][8][4] = {};
    Sixteen next[V_LOADS];
    for (int load = 0; load < V_LOADS; load++)
        next[load] = product_piece(left, right, top, beside, atoms, words, 0, load * V_THREADS + thread);
    int stage = 0;
    for (int64 first = 0; first < words; first += V_WORDS) {
        for (int load = 0; load < V_LOADS; load++) {
            const unsigned piece = load * V_THREADS + thread, side = piece / (V_TILE * V_PIECES);
            const unsigned row = piece % (V_TILE * V_PIECES) / V_PIECES;
            held[stage][side][row * (V_STRIDE / 4) + piece % V_PIECES] = next[load];
        }
        __syncthreads();  // the other stage is free again too: all have passed the products of the step before last
        if (first + V_WORDS < words)
            for (int load = 0; load < V_LOADS; load++)
                next[load] =
                    product_piece(left, right, top, beside, atoms, words, first + V_WORDS, load * V_THREADS + thread);
        const unsigned *above = held[stage][0][0].word, *aside = held[stage][1][0].word;
        for (int step = 0; step < V_WORDS; step += 8) {
            unsigned columns[8][2];
            for (int tile = 0; tile < 8; tile++)
                for (int part = 0; part < 2; part++)
                    columns[tile][part] = aside[(across + 8 * tile + group) * V_STRIDE + step + 4 * part + quarter];
            for (int tile = 0; tile < 4; tile++) {
                unsigned own[4];
                for (int part = 0; part < 4; part++)
                    own[part] =
                        above[(down + 16 * tile + group + 8 * (part % 2)) * V_STRIDE + step + 4 * (part / 2) + quarter];
                for (int other = 0; other < 8; other++)
                    Kind::multiply(sums[tile][other], own, columns[other]);
            }
        }
        stage ^= 1;
    }
    UNROLLED for (int tile = 0; tile < 4; tile++)
        UNROLLED for (int other = 0; other < 8; other++)
            UNROLLED for (int part = 0; part < 4; part++) {
                const int64 a = top + down + 16 * tile + group + 8 * (part / 2);
                const int64 b = beside + across + 8 * other + 2 * quarter + part % 2;
                if (a <= b && a < rows && b < atoms)
                    out[a * stride + b] += (T)(factor * sums[tile][other][part]);  // no other block has this entry
            }
}

extern "C" __global__ void add_bits_32(
    int *out, int64 rows, int64 stride, const unsigned *left, const unsigned *right, int64 atoms, int64 words, int64 factor)
{
    add_products<int, Bits>(out, rows, stride, left, right, atoms, words, factor);
}

extern "C" __global__ void add_bits_64(
    int64 *out, int64 rows, int64 stride, const unsigned *left, const unsigned *right, int64 atoms, int64 words, int64 factor)
{
    add_products<int64, Bits>(out, rows, stride, left, right, atoms, words, factor);
}

extern "C" __global__ void add_bytes_32(
    int *out, int64 rows, int64 stride, const unsigned *left, const unsigned *right, int64 atoms, int64 words, int64 factor)
{
    add_products<int, Bytes>(out, rows, stride, left, right, atoms, words, factor);
}

extern "C" __global__ void add_bytes_64(
    int64 *out, int64 rows, int64 stride, const unsigned *left, const unsigned *right, int64 atoms, int64 words, int64 factor)
{
    add_products<int64, Bytes>(out, rows, stride, left, right, atoms, words, factor);
}

// bytes[a][i] = bit i of row a from word `first` on, of `some` words.
extern "C" __global__ void spread_bits(
    const unsigned *bits, int64 atoms, int64 words, int64 first, int64 some, signed char *bytes, int64 stride)
{
    for (int64 item = warp_number(); item < atoms * some; item += warp_count()) {
        const int64 atom = item / some, word = item % some;
        bytes[atom * stride + word * WARP + lane_number()] = bits[atom * words + first + word] >> lane_number() & 1;
    }
}

// limbs[n][a][b] = digit n of counts[b][a] to the base 128, zero from image `images` on.
extern "C" __global__ void split_counts(
    const int *counts, int64 images, int64 atoms, int64 digits, signed char *limbs, int64 stride)
{
    for (int64 item = warp_number(); item < atoms * (stride / WARP); item += warp_count()) {
        const int64 atom = item % atoms, image = item / atoms * WARP + lane_number();
        const int count = image < images ? counts[image * atoms + atom] : 0;
        for (int64 digit = 0; digit < digits; digit++)
            limbs[(digit * atoms + atom) * stride + image] = (signed char)(count >> 7 * digit & 127);
    }
}

// counts[image][a] = the patches of an image that have atom a. A warp takes an atom of an image.
extern "C" __global__ void count_atoms(
    const unsigned *bits, int64 atoms, int64 words, int64 images, int64 image_words, int *counts)
{
    for (int64 item = warp_number(); item < atoms * images; item += warp_count()) {
        const int64 atom = item / images, image = item % images;
        int found = 0;
        for (int64 word = lane_number(); word < image_words; word += WARP)
            found += __popc(bits[atom * words + image * image_words + word]);
        for (unsigned apart = WARP / 2; apart > 0; apart /= 2)
            found += __shfl_xor_sync(0xffffffffu, found, apart);
        if (lane_number() == 0)
            counts[image * atoms + atom] = found;
    }
}

// out[a] += the patches that have atom a. A warp takes an atom.
extern "C" __global__ void count_active(const unsigned *bits, int64 atoms, int64 words, int64 *out)
{
    for (int64 atom = warp_number(); atom < atoms; atom += warp_count()) {
        int64 found = 0;
        for (int64 word = lane_number(); word < words; word += WARP)
            found += __popc(bits[atom * words + word]);
        for (unsigned apart = WARP / 2; apart > 0; apart /= 2)
            found += __shfl_xor_sync(0xffffffffu, found, apart);
        if (lane_number() == 0)
            out[atom] += found;  // no other warp has this entry
    }
}

// Of lists: the atoms of patch i are indices[indptr[i]] to indices[indptr[i + 1] - 1], ascending. out[i / step, a] += the
// weight of patch i, for each of its atoms a; out has `stride` columns.
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
