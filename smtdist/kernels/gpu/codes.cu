// From patches to codes, kept as bits: which patches have an atom stands in a row of words, 32 patches to a word, the first
// in the lowest bit. An image takes whole words, so that one array serves codes, counts and products; a row is filled with
// zeros up to a multiple of 16 words.

typedef unsigned short atom_t;

// The patch of a bit, -1 where there is none.
__device__ inline int64 patch_of(int64 word, unsigned bit, int64 images, int64 per_image)
{
    const int64 image_words = (per_image + WARP - 1) / WARP, image = word / image_words;
    const int64 at = word % image_words * WARP + bit;
    return image < images && at < per_image ? image * per_image + at : -1;
}

struct alignas(16) Sixteen {
    unsigned word[4];
};

// Products of int8 on tensor cores with sums in int32: 16 x 32 numbers, times 32 x 8, are added to 16 x 8 sums (PTX:
// mma.m16n8k32). With g = lane / 4 and t = lane % 4 a lane holds, four numbers to a word: of the left, numbers 4 t of rows g
// and g + 8, then numbers 16 + 4 t of the same; of the right, numbers 4 t and 16 + 4 t of column g; and of the sums, columns
// 2 t and 2 t + 1 of row g, then of row g + 8. Where this runs without a card there are other functions of these names.
#ifdef __CUDACC_RTC__
__device__ inline void multiply_bytes(int *sums, const unsigned *left, const unsigned *right)
{
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
#else
    __trap();  // older cards are never given this kernel
#endif
}
#endif

const int HALF = 128;  // a number is 128 high + low, both in int8
const int BYTES_STEP = 32;

// rows[i] = the halves of column first + i of `numbers` (pixels, stride), whole numbers of at most 4,096: `padded` high ones,
// then as many low ones, zeros behind the last pixel.
extern "C" __global__ void halve(
    const float *numbers, int64 pixels, int64 stride, int64 first, int64 count, int64 padded, signed char *rows)
{
    for (int64 from = warp_number() * WARP; from < count; from += warp_count() * WARP) {
        const int64 own = from + lane_number();
        if (own >= count)
            continue;
        for (int64 group = 0; group < padded; group += 4) {
            unsigned high = 0, low = 0;
            for (int64 next = 0; next < 4 && group + next < pixels; next++) {
                const int whole = (int)numbers[(group + next) * stride + first + own], upper = (whole + HALF / 2) >> 7;
                high |= (unsigned)(upper & 255) << 8 * next;
                low |= (unsigned)((whole - upper * HALF) & 255) << 8 * next;
            }
            *(unsigned *)(rows + 2 * own * padded + group) = high;
            *(unsigned *)(rows + (2 * own + 1) * padded + group) = low;
        }
    }
}

const int M_ATOMS = 64, M_PATCHES = 128, M_CHUNK = 128;  // pixels that are held at a time: high halves, then low ones
const int M_PIECES = 2 * M_CHUNK / 16, M_WORDS = M_PATCHES / 32;

// Piece `part` of a row goes where the 32 lanes of a warp, which read eight rows at a time, meet all 32 banks.
__device__ inline unsigned place_of(unsigned row, unsigned part) { return row * M_PIECES + (part ^ row % 8); }

__device__ inline unsigned held_word(const Sixteen *rows, unsigned row, unsigned byte)
{
    return rows[place_of(row, byte / 16)].word[byte % 16 / 4];
}

__device__ inline Sixteen piece_of(const signed char *rows, int64 row, unsigned part, int64 chunk, int64 pixels)
{
    const int64 half = part / (M_PIECES / 2), byte = chunk * M_CHUNK + part % (M_PIECES / 2) * 16;
    return row < 0 || byte >= pixels ? Sixteen{} : *(const Sixteen *)(rows + (2 * row + half) * pixels + byte);
}

// bits[a][w] = which patches reach `cut` with atom a, constant ones never. Four warps take four words, from word `first_word`
// on, and all atoms, 64 at a time: each warp one word, 64 atoms x 32 patches. Patches stay where they are held unless they
// have more pixels than fit. Sums are made by Horner's rule, high x high first, so that there is one sum for each pair and
// not three; they end below 2^24, and stay within 32 bits on the way for up to 100,000 pixels.
//
// counts[i] = the atoms of patch i. patches : halves of the patches from number `from` on; atoms : halves; both of `pixels`, a multiple of 32.
extern "C" __global__ void mark_bits(
    const signed char *patches, int64 from, int64 images, int64 per_image, const signed char *atoms, int64 n_atoms,
    int64 pixels, int cut, const bool *constant, unsigned *bits, int64 words, int64 first_word, int64 *counts)
{
    __shared__ Sixteen kept[M_PATCHES * M_PIECES], passing[M_ATOMS * M_PIECES];
    const unsigned all = 0xffffffffu, thread = threadIdx.x, warp = thread / WARP, lane = thread % WARP;
    const unsigned group = lane / 4, quarter = lane % 4;
    const int64 start = first_word + blockIdx.x * (int64)M_WORDS, word = start + warp;
    const int64 own = patch_of(word, lane, images, per_image), chunks = (pixels + M_CHUNK - 1) / M_CHUNK;
    const unsigned coded = __ballot_sync(all, own >= 0 && !constant[own < 0 ? 0 : own]);
    int active[4][2] = {};  // of the patches that this lane has sums of
    for (int64 first = 0; first < n_atoms; first += M_ATOMS) {
        int sums[4][4][4] = {};
        for (int round = 0; round < 4; round++) {  // high x high, high x low, low x high, low x low
            const unsigned half = round / 2 * M_CHUNK, other_half = round % 2 * M_CHUNK;
            if (round % 2)
                for (int tile = 0; tile < 4; tile++)
                    for (int beside = 0; beside < 4; beside++)
                        for (int part = 0; part < 4; part++)
                            sums[tile][beside][part] *= HALF;
            for (int64 chunk = 0; chunk < chunks; chunk++) {
                if (round == 0 || chunks > 1) {
                    __syncthreads();  // all have done with what is held
                    if (first == 0 || chunks > 1)
                        for (unsigned piece = thread; piece < M_PATCHES * M_PIECES; piece += blockDim.x) {
                            const unsigned row = piece / M_PIECES, part = piece % M_PIECES;
                            const int64 patch = patch_of(start + row / WARP, row % WARP, images, per_image);
                            kept[place_of(row, part)] = piece_of(patches, patch < 0 ? -1 : patch - from, part, chunk, pixels);
                        }
                    for (unsigned piece = thread; piece < M_ATOMS * M_PIECES; piece += blockDim.x) {
                        const unsigned row = piece / M_PIECES, part = piece % M_PIECES;
                        passing[place_of(row, part)] =
                            piece_of(atoms, first + row < n_atoms ? first + row : -1, part, chunk, pixels);
                    }
                    __syncthreads();
                }
                const int64 left = pixels - chunk * M_CHUNK, steps = left < M_CHUNK ? left : M_CHUNK;
                for (unsigned step = 0; step < steps; step += BYTES_STEP) {
                    unsigned columns[4][2];
                    for (int beside = 0; beside < 4; beside++)
                        for (int part = 0; part < 2; part++)
                            columns[beside][part] = held_word(
                                kept, WARP * warp + 8 * beside + group, other_half + step + 16 * part + 4 * quarter);
                    for (int tile = 0; tile < 4; tile++) {
                        unsigned rows[4];
                        for (int part = 0; part < 4; part++)
                            rows[part] = held_word(
                                passing, 16 * tile + group + 8 * (part % 2), half + step + 16 * (part / 2) + 4 * quarter);
                        for (int beside = 0; beside < 4; beside++)
                            multiply_bytes(sums[tile][beside], rows, columns[beside]);
                    }
                }
            }
        }
        for (int tile = 0; tile < 4; tile++)
            for (int lower = 0; lower < 2; lower++) {
                const int64 atom = first + 16 * tile + group + 8 * lower;
                unsigned marks = 0;
                for (int beside = 0; beside < 4; beside++)
                    for (int next = 0; next < 2; next++)
                        if (atom < n_atoms && sums[tile][beside][2 * lower + next] >= cut) {
                            marks |= 1u << (8 * beside + 2 * quarter + next);
                            active[beside][next]++;
                        }
                marks |= __shfl_xor_sync(all, marks, 1);
                marks |= __shfl_xor_sync(all, marks, 2);
                if (quarter == 0 && atom < n_atoms)
                    bits[atom * words + word] = marks & coded;
            }
    }
    for (int beside = 0; beside < 4; beside++)
        for (int next = 0; next < 2; next++) {
            int count = active[beside][next];
            for (unsigned apart = 4; apart < WARP; apart *= 2)
                count += __shfl_xor_sync(all, count, apart);
            const unsigned bit = 8 * beside + 2 * quarter + next;
            const int64 patch = patch_of(word, bit, images, per_image);
            if (group == 0 && patch >= 0)
                counts[patch] = coded >> bit & 1 ? count : 0;
        }
}

// The same from products in float32, (atoms, count) of the patches from number `from` on, to `some` words.
extern "C" __global__ void mark_dots(
    const float *dots, int64 from, int64 count, int64 images, int64 per_image, int64 n_atoms, float cut, const bool *constant,
    unsigned *bits, int64 words, int64 first_word, int64 some)
{
    for (int64 item = warp_number(); item < n_atoms * some; item += warp_count()) {
        const int64 atom = item / some, word = first_word + item % some;
        const int64 patch = patch_of(word, lane_number(), images, per_image);
        const bool reached = patch >= 0 && !constant[patch] && dots[atom * count + patch - from] >= cut;
        const unsigned marks = __ballot_sync(0xffffffffu, reached);
        if (lane_number() == 0)
            bits[atom * words + word] = marks;
    }
}

// counts[i] += the atoms of patch i. A warp takes 32 words beside each other, of 256 atoms.
const int64 ATOMS_EACH = 256;
extern "C" __global__ void count_patches(
    const unsigned *bits, int64 atoms, int64 words, int64 images, int64 per_image, int64 *counts)
{
    const int64 used = images * ((per_image + WARP - 1) / WARP), groups = (used + WARP - 1) / WARP;
    const int64 items = groups * ((atoms + ATOMS_EACH - 1) / ATOMS_EACH);
    for (int64 item = warp_number(); item < items; item += warp_count()) {
        const int64 word = item % groups * WARP + lane_number(), first = item / groups * ATOMS_EACH;
        const int64 last = first + ATOMS_EACH < atoms ? first + ATOMS_EACH : atoms;
        int found[WARP] = {};
        for (int64 atom = first; atom < last && word < used; atom++) {
            const unsigned marks = bits[atom * words + word];
            UNROLLED for (unsigned bit = 0; bit < WARP; bit++) found[bit] += marks >> bit & 1;
        }
        UNROLLED for (unsigned bit = 0; bit < WARP; bit++) if (found[bit])
            add_to(counts + patch_of(word, bit, images, per_image), found[bit]);
    }
}

// A patch without an atom gets its best one, the first of equals, where its policy says so: of a constant one, all of whose
// products are 0, the first. One patch at a time: few have none. grid : (pixels, patches); atoms : (n_atoms, pixels).
extern "C" __global__ void mark_best(
    const float *grid, int64 pixels, int64 images, int64 per_image, const float *atoms, int64 n_atoms, const bool *constant,
    int best_constant, int best_zero, unsigned *bits, int64 words, int64 *counts)
{
    const int64 patches = images * per_image, image_words = (per_image + WARP - 1) / WARP;
    for (int64 patch = warp_number(); patch < patches; patch += warp_count()) {
        if (counts[patch] || !(constant[patch] ? best_constant : best_zero))
            continue;
        float best = 0;
        int64 winner = n_atoms;
        for (int64 atom = lane_number(); atom < n_atoms; atom += WARP) {
            float dot = 0;
            for (int64 pixel = 0; pixel < pixels; pixel++)
                dot += grid[pixel * patches + patch] * atoms[atom * pixels + pixel];
            if (winner == n_atoms || dot > best) {
                best = dot;
                winner = atom;
            }
        }
        for (unsigned apart = WARP / 2; apart > 0; apart /= 2) {
            const float other = __shfl_xor_sync(0xffffffffu, best, apart);
            const int64 rival = __shfl_xor_sync(0xffffffffu, winner, apart);
            if (rival < n_atoms && (winner == n_atoms || other > best || (other == best && rival < winner))) {
                best = other;
                winner = rival;
            }
        }
        if (lane_number() == 0) {
            const int64 at = patch % per_image;
            atomicOr(bits + winner * words + patch / per_image * image_words + at / WARP, 1u << at % WARP);
            counts[patch] = 1;
        }
    }
}

// The atoms of patch i, ascending, go to indices[indptr[i]] and on. A warp takes a word, a lane a patch.
extern "C" __global__ void list_bits(
    const unsigned *bits, int64 atoms, int64 words, int64 images, int64 per_image, const int64 *indptr, atom_t *indices)
{
    const unsigned all = 0xffffffffu, lane = lane_number();
    const int64 used = images * ((per_image + WARP - 1) / WARP);
    for (int64 word = warp_number(); word < used; word += warp_count()) {
        const int64 patch = patch_of(word, lane, images, per_image);
        atom_t *place = indices + (patch < 0 ? 0 : indptr[patch]);
        for (int64 first = 0; first < atoms; first += WARP) {
            const unsigned own = first + lane < atoms ? bits[(first + lane) * words + word] : 0;
            for (unsigned some = __ballot_sync(all, own != 0); some; some &= some - 1) {
                const unsigned from = __ffs(some) - 1;
                if (__shfl_sync(all, own, from) >> lane & 1)
                    *place++ = (atom_t)(first + from);
            }
        }
    }
}

// Bits, all zero before, from lists.
extern "C" __global__ void mark_lists(
    const int64 *indptr, const atom_t *indices, int64 patches, unsigned *bits, int64 words)
{
    for (int64 patch = warp_number(); patch < patches; patch += warp_count())
        for (int64 entry = indptr[patch] + lane_number(); entry < indptr[patch + 1]; entry += WARP)
            atomicOr(bits + indices[entry] * words + patch / WARP, 1u << patch % WARP);
}
