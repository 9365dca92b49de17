// From pixels to patches minus a mean. Patches lie side by side: number i of pixel j is out[j * patches + i], so that a warp, which
// takes 32 patches of a pixel, writes one run of memory.

// ⌊a / b⌋ for b > 0
__device__ inline int64 floor_of(int64 a, int64 b) { return a / b - (a % b < 0); }

// own[image, row, column] = the sum of a patch's pixels, channels included.
extern "C" __global__ void sum_patches(
    const int *grid, int64 images, int64 height, int64 width, int64 channels, int64 size, int64 *own)
{
    const int64 rows = height - size + 1, columns = width - size + 1, patches = images * rows * columns;
    for (int64 first = warp_number() * WARP; first < patches; first += warp_count() * WARP) {
        const int64 patch = first + lane_number();
        if (patch >= patches)
            continue;
        const int64 image = patch / (rows * columns), row = patch / columns % rows, column = patch % columns;
        int64 sum = 0;
        for (int64 down = 0; down < size; down++)
            for (int64 at = 0; at < size * channels; at++)
                sum += grid[((image * height + row + down) * width + column) * channels + at];
        own[patch] = sum;
    }
}

// total[image, row, column] = the sum of what lies above and to the left, (images, height + 1, width + 1, channels). A warp
// takes a channel of an image, row by row; each lane adds to what it wrote itself in the row above.
template <typename T>
__device__ inline void integrate(const T *values, int64 images, int64 height, int64 width, int64 channels, int64 *total)
{
    const unsigned all = 0xffffffffu, lane = lane_number();
    for (int64 plane = warp_number(); plane < images * channels; plane += warp_count()) {
        const int64 image = plane / channels, channel = plane % channels;
        const T *from = values + image * height * width * channels + channel;
        int64 *to = total + image * (height + 1) * (width + 1) * channels + channel;
        for (int64 column = lane; column <= width; column += WARP)
            to[column * channels] = 0;
        for (int64 row = 1; row <= height; row++) {
            int64 before = 0;  // the sum of the row up to here
            if (lane == 0)
                to[row * (width + 1) * channels] = 0;
            for (int64 base = 0; base < width; base += WARP) {
                const int64 column = base + lane;
                int64 upto = column < width ? from[((row - 1) * width + column) * channels] : 0;
                for (unsigned apart = 1; apart < WARP; apart *= 2) {
                    const int64 other = __shfl_up_sync(all, upto, apart);
                    if (lane >= apart)
                        upto += other;
                }
                upto += before;
                if (column < width)
                    to[(row * (width + 1) + column + 1) * channels] =
                        upto + to[((row - 1) * (width + 1) + column + 1) * channels];
                before = __shfl_sync(all, upto, WARP - 1);
            }
        }
    }
}

extern "C" __global__ void integrate_32(
    const int *values, int64 images, int64 height, int64 width, int64 channels, int64 *total)
{
    integrate(values, images, height, width, channels, total);
}

extern "C" __global__ void integrate_64(
    const int64 *values, int64 images, int64 height, int64 width, int64 channels, int64 *total)
{
    integrate(values, images, height, width, channels, total);
}

// out[pixel, i] = the pixel of patch i minus a mean over the patches within reach, rounded, halves up: of this pixel alone, or,
// with `level`, of all their pixels.
//
// grid: (images, height, width, channels). total: of the pixels, or of the patches' own sums, as `integrate` leaves it. at:
// where each of the `drawn` patches of an image lies, row by row; not read where these are all there are.
extern "C" __global__ void centre(
    const int *grid, const int64 *total, bool level, const int *at, int64 patches, int64 drawn, int64 height, int64 width,
    int64 channels, int64 size, int64 reach, double *out)
{
    const int64 rows = height - size + 1, columns = width - size + 1;
    const int64 tall = level ? rows + 1 : height + 1, wide = level ? columns + 1 : width + 1, deep = level ? 1 : channels;
    const int64 groups = (patches + WARP - 1) / WARP, units = groups * size * size * channels;
    for (int64 unit = warp_number(); unit < units; unit += warp_count()) {
        const int64 pixel = unit / groups, patch = unit % groups * WARP + lane_number();
        if (patch >= patches)
            continue;
        const int64 channel = pixel % channels, down = pixel / channels / size, across = pixel / channels % size;
        const int64 place = drawn == rows * columns ? patch % drawn : at[patch];
        const int64 image = patch / drawn, row = place / columns, column = place % columns;
        const int64 top = row > reach ? row - reach : 0, left = column > reach ? column - reach : 0;
        const int64 bottom = row + reach < rows ? row + reach + 1 : rows;
        const int64 right = column + reach < columns ? column + reach + 1 : columns;
        const int64 *from = total + image * tall * wide * deep + (level ? 0 : (down * wide + across) * deep + channel);
        const int64 *upper = from + top * wide * deep, *lower = from + bottom * wide * deep;
        const int64 box = lower[right * deep] - upper[right * deep] - lower[left * deep] + upper[left * deep];
        const int64 count = (bottom - top) * (right - left) * (level ? size * size * channels : 1);
        const int own = grid[((image * height + row + down) * width + column + across) * channels + channel];
        out[pixel * patches + patch] = (double)(own - floor_of(2 * box + count, 2 * count));
    }
}
