// From lists of atoms to embeddings, and from these to pooled ones: a warp a row, its lanes beside each other in the row.
// Every number is made by the operations of the CPU in their order, so that it has the same bits.

// Brings a row to unit length; squares are added in float64, where those of float32 are exact, in the order of the row. Each
// lane reads what it wrote itself.
__device__ inline void make_unit(float *row, int64 length)
{
    const unsigned all = 0xffffffffu, lane = lane_number();
    double total = 0;
    for (int64 base = 0; base < length; base += WARP) {
        const float own = base + lane < length ? row[base + lane] : 0;
        for (unsigned other = 0; other < WARP && base + other < length; other++) {
            const double value = __shfl_sync(all, own, other);
            total += value * value;
        }
    }
    const double norm = total > 0 ? sqrt(total) : 1;
    for (int64 at = lane; at < length; at += WARP)
        row[at] = (float)(row[at] / norm);
}

const int TOGETHER = 4;  // numbers that a lane adds up at a time, for one look at the list

// out[i] = the unit vector along the sum of the rows of `components` (atoms, length) of patch i's atoms, those before `half`
// and the others added up apart.
extern "C" __global__ void embed_lists(
    const int64 *indptr, const atom_t *indices, const float *components, int64 half, int64 length, int64 patches, float *out)
{
    for (int64 patch = warp_number(); patch < patches; patch += warp_count()) {
        const int64 first = indptr[patch], last = indptr[patch + 1];
        float *row = out + patch * length;
        for (int64 base = lane_number(); base < length; base += TOGETHER * WARP) {
            float low[TOGETHER] = {}, high[TOGETHER] = {};
            for (int64 entry = first; entry < last; entry++) {
                const int64 atom = indices[entry];
                const float *from = components + atom * length + base;
                for (int part = 0; part < TOGETHER; part++) {
                    const float value = base + part * WARP < length ? from[part * WARP] : 0;
                    if (atom < half)
                        low[part] += value;
                    else
                        high[part] += value;
                }
            }
            for (int part = 0; part < TOGETHER; part++)
                if (base + part * WARP < length)
                    row[base + part * WARP] = low[part] + high[part];
        }
        make_unit(row, length);
    }
}

// out[cell] = the unit vector along the mean of the embeddings in a window of size x size positions; `mirrored`: of the
// positions in the order of mirror images.
extern "C" __global__ void pool_windows(
    const float *embedded, int64 rows, int64 columns, int64 length, int64 down, int64 across, int64 size, int64 stride,
    bool mirrored, int64 cells, float *out)
{
    const float count = (float)(size * size);
    for (int64 cell = warp_number(); cell < cells; cell += warp_count()) {
        const int64 image = cell / (down * across), top = cell / across % down * stride, left = cell % across * stride;
        float *row = out + cell * length;
        for (int64 at = lane_number(); at < length; at += WARP) {
            float sum = 0;
            for (int64 y = top; y < top + size; y++)
                for (int64 x = left; x < left + size; x++)
                    sum += embedded[((image * rows + y) * columns + (mirrored ? columns - 1 - x : x)) * length + at];
            row[at] = sum / count;
        }
        make_unit(row, length);
    }
}
