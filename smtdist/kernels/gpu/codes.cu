// From dot products to lists of atoms in two sweeps of a warp a patch: mark the atoms that reach the threshold and count
// them; then, once it is known where each list begins, write it.

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
            for (unsigned apart = WARP / 2; apart > 0; apart /= 2) {
                const float other = __shfl_xor_sync(all, best, apart);
                const int64 rival = __shfl_xor_sync(all, winner, apart);
                if (rival < atoms && (winner == atoms || other > best || (other == best && rival < winner))) {
                    best = other;
                    winner = rival;
                }
            }
            if (lane == 0)
                marks[winner / WARP] = 1u << winner % WARP;
            count = 1;
        }
        if (lane == 0)
            counts[patch] = count;
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
