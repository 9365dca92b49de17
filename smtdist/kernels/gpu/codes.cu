// From dot products to lists of atoms in two sweeps of a warp a patch: mark the atoms that reach the threshold and count
// them; then, once it is known where each list begins, write it.

// The best atom of what the lanes of a warp found, each its own best one or `atoms`: the first of equals.
template <typename T>
__device__ inline int64 best_of_warp(T best, int64 winner, int64 atoms)
{
    for (unsigned apart = WARP / 2; apart > 0; apart /= 2) {
        const T other = __shfl_xor_sync(0xffffffffu, best, apart);
        const int64 rival = __shfl_xor_sync(0xffffffffu, winner, apart);
        if (rival < atoms && (winner == atoms || other > best || (other == best && rival < winner))) {
            best = other;
            winner = rival;
        }
    }
    return winner;
}

// Of a patch's products, a row of `dots`, those that are at least `cut` become bits: atom a is bit a % 32 of word a / 32.
// A patch without any, as a constant one always is, gets its best atom (the first of equals) where its policy says so.
extern "C" __global__ void mark_reached(
    const float *dots, int64 patches, int64 atoms, float cut, const bool *constant, int best_constant, int best_zero,
    unsigned *words, int64 width, int64 *counts)
{
    const unsigned all = 0xffffffffu, lane = lane_number();
    for (int64 patch = warp_number(); patch < patches; patch += warp_count()) {
        const float *row = dots + patch * atoms;
        unsigned *marks = words + patch * width;
        const bool flat = constant[patch];
        float best = 0;
        int64 winner = atoms, count = 0;
        for (int64 word = 0; word < width; word++) {
            const int64 atom = word * WARP + lane;
            const bool there = atom < atoms;
            const float dot = there ? row[atom] : 0;
            const unsigned reached = __ballot_sync(all, there && !flat && dot >= cut);
            if (lane == 0)
                marks[word] = reached;
            count += __popc(reached);
            if (there && (winner == atoms || dot > best)) {
                best = dot;
                winner = atom;
            }
        }
        if (count == 0 && (flat ? best_constant : best_zero)) {
            winner = best_of_warp(best, winner, atoms);
            if (lane == 0)
                marks[winner / WARP] = 1u << winner % WARP;
            count = 1;
        }
        if (lane == 0)
            counts[patch] = count;
    }
}

// Products of int8 on tensor cores with sums in int32: 16 patches x 32 pixels, times 32 pixels x 8 atoms, are added to 16 x 8
// sums (PTX: mma.m16n8k32). With g = lane / 4 and t = lane % 4 a lane holds, four pixels to a number:
// of the patches, pixels 4 t of rows g and g + 8, then pixels 16 + 4 t of the same; of the atoms, pixels 4 t and 16 + 4 t of
// column g; and of the sums, columns 2 t and 2 t + 1 of row g, then of row g + 8. Where this runs without a card there is
// another function of this name.
#ifdef __CUDACC_RTC__
__device__ inline void multiply_bytes(int *sums, const unsigned *patches, const unsigned *atoms)
{
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(patches[0]), "r"(patches[1]), "r"(patches[2]), "r"(patches[3]), "r"(atoms[0]), "r"(atoms[1]));
#else
    __trap();  // older cards are never given this kernel
#endif
}
#endif

const int HALF = 128;  // a number is 128 high + low, both in int8
const int BYTES_STEP = 32, PATCH_TILES = 2, ATOM_TILES = 4;
const int64 CHUNK_WORDS = 16;  // words of marks that a warp takes at a time

__device__ inline unsigned four_bytes(const signed char *rows, int64 row, int64 half, int64 pixels, int64 pixel)
{
    return *(const unsigned *)(rows + (2 * row + half) * pixels + pixel);
}

// Which atoms reach `cut`, as bits of `words`. `patches` and `atoms` have rows of `pixels` high halves, then as many low
// ones; `pixels` is a multiple of 32, behind the last there are zeros. A warp takes 32 patches and 32 atoms of a word.
extern "C" __global__ void mark_products(
    const signed char *patches, int64 count, const signed char *atoms, int64 n_atoms, int64 pixels, int cut,
    unsigned *words, int64 width)
{
    const unsigned all = 0xffffffffu, lane = lane_number(), group = lane / 4, quarter = lane % 4;
    const int64 rows_each = 16 * PATCH_TILES, tiles = (count + rows_each - 1) / rows_each;
    const int64 items = tiles * ((width + CHUNK_WORDS - 1) / CHUNK_WORDS);
    for (int64 item = warp_number(); item < items; item += warp_count()) {
        const int64 top = item % tiles * rows_each, first = item / tiles * CHUNK_WORDS;
        for (int64 word = first; word < first + CHUNK_WORDS && word < width; word++) {
            int sums[PATCH_TILES][ATOM_TILES][3][4] = {};
            for (int64 step = 0; step < pixels; step += BYTES_STEP) {
                unsigned rows[PATCH_TILES][2][4];
                for (int tile = 0; tile < PATCH_TILES; tile++)
                    for (int half = 0; half < 2; half++)
                        for (int part = 0; part < 4; part++) {
                            const int64 row = top + 16 * tile + group + 8 * (part % 2);
                            rows[tile][half][part] = four_bytes(
                                patches, row < count ? row : count - 1, half, pixels, step + 4 * quarter + 16 * (part / 2));
                        }
                for (int next = 0; next < ATOM_TILES; next++) {
                    const int64 atom = word * WARP + 8 * next + group;
                    unsigned columns[2][2];
                    for (int half = 0; half < 2; half++)
                        for (int part = 0; part < 2; part++)
                            columns[half][part] = four_bytes(
                                atoms, atom < n_atoms ? atom : n_atoms - 1, half, pixels, step + 4 * quarter + 16 * part);
                    for (int tile = 0; tile < PATCH_TILES; tile++)
                        for (int half = 0; half < 2; half++)
                            for (int other = 0; other < 2; other++)
                                multiply_bytes(sums[tile][next][half + other], rows[tile][half], columns[other]);
                }
            }
            for (int tile = 0; tile < PATCH_TILES; tile++)
                for (int lower = 0; lower < 2; lower++) {
                    unsigned marks = 0;
                    for (int next = 0; next < ATOM_TILES; next++)
                        for (int beside = 0; beside < 2; beside++) {
                            const unsigned place = 8 * next + 2 * quarter + beside;
                            int(*part)[4] = sums[tile][next];
                            const int which = 2 * lower + beside;
                            const int total = HALF * (HALF * part[0][which] + part[1][which]) + part[2][which];
                            if (word * WARP + place < n_atoms && total >= cut)
                                marks |= 1u << place;
                        }
                    marks |= __shfl_xor_sync(all, marks, 1);
                    marks |= __shfl_xor_sync(all, marks, 2);
                    const int64 row = top + 16 * tile + group + 8 * lower;
                    if (quarter == 0 && row < count)
                        words[row * width + word] = marks;
                }
        }
    }
}

// Count the marks of every patch, its policies applied as in `mark_reached`. Best atoms are looked for one patch at a time:
// few patches have no mark.
extern "C" __global__ void settle_marks(
    const signed char *patches, int64 count, const signed char *atoms, int64 n_atoms, int64 pixels, const bool *constant,
    int best_constant, int best_zero, unsigned *words, int64 width, int64 *counts)
{
    const unsigned all = 0xffffffffu, lane = lane_number();
    for (int64 patch = warp_number(); patch < count; patch += warp_count()) {
        unsigned *marks = words + patch * width;
        const bool flat = constant[patch];
        int64 found = 0;
        for (int64 word = lane; word < width; word += WARP) {
            if (flat)
                marks[word] = best_constant && word == 0;  // all products are 0: the first atom
            found += __popc(marks[word]);
        }
        for (unsigned apart = WARP / 2; apart > 0; apart /= 2)
            found += __shfl_xor_sync(all, found, apart);
        if (found == 0 && !flat && best_zero) {
            int best = 0;
            int64 winner = n_atoms;
            for (int64 atom = lane; atom < n_atoms; atom += WARP) {
                int total = 0;
                for (int64 pixel = 0; pixel < pixels; pixel++) {
                    const signed char *mine = patches + 2 * patch * pixels, *other = atoms + 2 * atom * pixels;
                    total += (HALF * mine[pixel] + mine[pixels + pixel]) * (HALF * other[pixel] + other[pixels + pixel]);
                }
                if (winner == n_atoms || total > best) {
                    best = total;
                    winner = atom;
                }
            }
            winner = best_of_warp(best, winner, n_atoms);
            if (lane == 0)
                marks[winner / WARP] = 1u << winner % WARP;
            found = 1;
        }
        if (lane == 0)
            counts[patch] = found;
    }
}

// The marked atoms of patch i, ascending, go to indices[indptr[i]] and on.
extern "C" __global__ void list_marked(
    const unsigned *words, int64 width, const int64 *indptr, int64 patches, atom_t *indices)
{
    const unsigned all = 0xffffffffu, lane = lane_number();
    for (int64 patch = warp_number(); patch < patches; patch += warp_count()) {
        atom_t *list = indices + indptr[patch];
        for (int64 first = 0; first < width; first += WARP) {
            unsigned marks = first + lane < width ? words[patch * width + first + lane] : 0;
            const unsigned own = __popc(marks);
            unsigned upto = own;  // entries of the lanes up to this one
            for (unsigned apart = 1; apart < WARP; apart *= 2) {
                const unsigned before = __shfl_up_sync(all, upto, apart);
                if (lane >= apart)
                    upto += before;
            }
            atom_t *place = list + (upto - own);
            for (; marks; marks &= marks - 1)
                *place++ = (atom_t)((first + lane) * WARP + __ffs(marks) - 1);
            list += __shfl_sync(all, upto, WARP - 1);
        }
    }
}
