// From pixels to unit vectors. Patches lie side by side: number i of pixel j is out[j * patches + i], so that a warp, which
// takes 32 patches of a pixel, writes one run of memory.

// ⌊a / b⌋ for b > 0
__device__ inline int64 floor_of(int64 a, int64 b) { return a / b - (a % b < 0); }

// out[pixel, i] = the pixel of patch i minus its mean over the patches within reach, rounded, halves up.
//
// grid: (images, height, width, channels). total: its sums over all pixels above and to the left, (images, height + 1,
// width + 1, channels). at: where each of the `drawn` patches of an image lies, row by row.
extern "C" __global__ void centre_context(
    const int *grid, const int64 *total, const int *at, int64 patches, int64 drawn, int64 height, int64 width, int64 channels,
    int64 size, int64 reach, double *out)
{
    const int64 rows = height - size + 1, columns = width - size + 1;
    const int64 groups = (patches + WARP - 1) / WARP, units = groups * size * size * channels;
    for (int64 unit = warp_number(); unit < units; unit += warp_count()) {
        const int64 pixel = unit / groups, patch = unit % groups * WARP + lane_number();
        if (patch >= patches)
            continue;
        const int64 channel = pixel % channels, down = pixel / channels / size, across = pixel / channels % size;
        const int64 image = patch / drawn, row = at[patch] / columns, column = at[patch] % columns;
        const int64 top = row > reach ? row - reach : 0, left = column > reach ? column - reach : 0;
        const int64 bottom = row + reach < rows ? row + reach + 1 : rows;
        const int64 right = column + reach < columns ? column + reach + 1 : columns;
        const int64 *upper = total + ((image * (height + 1) + top + down) * (width + 1) + across) * channels + channel;
        const int64 *lower = total + ((image * (height + 1) + bottom + down) * (width + 1) + across) * channels + channel;
        const int64 box = lower[right * channels] - upper[right * channels] - lower[left * channels] + upper[left * channels];
        const int64 count = (bottom - top) * (right - left);
        const int own = grid[((image * height + row + down) * width + column + across) * channels + channel];
        out[pixel * patches + patch] = (double)(own - floor_of(2 * box + count, 2 * count));
    }
}

// grid[j, i] = rint(scale y / ‖y‖) of patch i, zero where it is constant: Σ m² < floor_sum, or y = 0. Squares are added in the
// order of the pixels, and no product is fused with a sum (an option of the compiler), so that the bits are those of the CPU.
//
// centred: m, (pixels, patches). whitened: y, alike.
extern "C" __global__ void unit_vectors(
    const double *centred, const double *whitened, double floor_sum, double scale, int64 pixels, int64 patches, float *grid,
    bool *constant)
{
    for (int64 first = warp_number() * WARP; first < patches; first += warp_count() * WARP) {
        const int64 patch = first + lane_number();
        if (patch >= patches)
            continue;
        double contrast = 0, squares = 0;
        for (int64 at = patch; at < pixels * patches; at += patches) {
            contrast += centred[at] * centred[at];
            squares += whitened[at] * whitened[at];
        }
        const bool flat = contrast < floor_sum || squares == 0;
        const double norm = flat ? 1 : sqrt(squares);
        constant[patch] = flat;
        for (int64 at = patch; at < pixels * patches; at += patches)
            grid[at] = flat ? 0 : (float)(rint(scale * (whitened[at] / norm)) + 0.0);  // no negative zeros
    }
}
