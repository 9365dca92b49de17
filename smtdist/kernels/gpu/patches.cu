// From pixels to unit vectors. Patches lie side by side: number i of pixel j is out[j * patches + i], so that a warp, which
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

// grid[j, i] = rint(scale y / ‖y‖) of patch i, zero where it is constant: Σ m² < floor_sum, or y = 0. Squares are added in the
// order of the pixels, and no product is fused with a sum (an option of the compiler), so that the bits are those of the CPU.
//
// centred: m, (pixels, patches). whitened: y, (patches / each, pixels, each): a product for so many patches each.
extern "C" __global__ void unit_vectors(
    const double *centred, const double *whitened, double floor_sum, double scale, int64 pixels, int64 patches, int64 each,
    float *grid, bool *constant)
{
    for (int64 first = warp_number() * WARP; first < patches; first += warp_count() * WARP) {
        const int64 patch = first + lane_number();
        if (patch >= patches)
            continue;
        const double *own = centred + patch, *y = whitened + patch / each * pixels * each + patch % each;
        double contrast = 0, squares = 0;
        for (int64 pixel = 0; pixel < pixels; pixel++) {
            contrast += own[pixel * patches] * own[pixel * patches];
            squares += y[pixel * each] * y[pixel * each];
        }
        const bool flat = contrast < floor_sum || squares == 0;
        const double norm = flat ? 1 : sqrt(squares);
        constant[patch] = flat;
        for (int64 pixel = 0; pixel < pixels; pixel++)  // no negative zeros
            grid[pixel * patches + patch] = flat ? 0 : (float)(rint(scale * (y[pixel * each] / norm)) + 0.0);
    }
}

const int64 RUN = 256;  // terms that are summed at a time, as on the CPU: another number makes other bits
const int TOGETHER_ROWS = 4;

// out = left right, (size, size), by the threads of a block: each number by fused multiply-adds in the order of the terms, in runs
// that are then added one after another, as in `float_products`.
__device__ inline void multiply_ordered(const double *left, const double *right, double *out, int64 size)
{
    const int64 groups = (size + TOGETHER_ROWS - 1) / TOGETHER_ROWS;
    for (int64 item = threadIdx.x; item < groups * size; item += blockDim.x) {
        const int64 top = item / size * TOGETHER_ROWS, column = item % size;
        double sums[TOGETHER_ROWS] = {};
        for (int64 first = 0; first < size; first += RUN) {
            double run[TOGETHER_ROWS] = {};
            for (int64 term = first; term < size && term < first + RUN; term++) {
                const double value = right[term * size + column];
                UNROLLED for (int row = 0; row < TOGETHER_ROWS; row++) if (top + row < size)
                    run[row] = fma(left[(top + row) * size + term], value, run[row]);
            }
            for (int row = 0; row < TOGETHER_ROWS; row++)
                sums[row] = first ? sums[row] + run[row] : run[row];
        }
        for (int row = 0; row < TOGETHER_ROWS && top + row < size; row++)
            out[(top + row) * size + column] = sums[row];
    }
    __syncthreads();
}

// The number at a place of the second moments (parts, images, size, size): whole numbers, of which the sum may pass 2^53.
__device__ inline int64 summed(const double *moments, int64 parts, int64 numbers, int64 at)
{
    int64 total = 0;
    for (int64 part = 0; part < parts; part++)
        total += (int64)moments[part * numbers + at];
    return total;
}

// roots[b] = (ridge I + moment / patches)^(-1/2) times a power of two, in whole numbers of at most 2^bits, of image b: see
// `inverse_root` and `integer_whitening`, whose numbers these are. A block takes an image; `room` has five matrices for each.
// order : where each pixel of a patch lies in the patch of the canonical view.
extern "C" __global__ void image_roots(
    const double *moments, int64 parts, int64 patches, double ridge, double nearly_one, const int64 *order, int64 size, int bits,
    double *room, double *roots)
{
    __shared__ double largest[WARP];
    const int64 first = blockIdx.x * size * size, numbers = gridDim.x * size * size;
    double *root = roots + first, *y = room + 5 * first;
    double *z = y + size * size, *step = z + size * size, *next_y = step + size * size, *next_z = next_y + size * size;
    int64 trace = 0;
    for (int64 at = 0; at < size; at++)
        trace += summed(moments, parts, numbers, first + at * size + at);
    const double scale = (double)trace / (double)patches + (double)size * ridge;
    for (int64 at = threadIdx.x; at < size * size; at += blockDim.x) {
        const int64 row = at / size, column = at % size;
        const int64 moment = summed(moments, parts, numbers, first + order[row] * size + order[column]);
        const double own = (double)moment / (double)patches;
        y[at] = (row == column ? own + ridge : own) / scale;
        z[at] = row == column;
    }
    __syncthreads();
    double low = sqrt(ridge / scale);
    for (bool last = false; !last;) {
        last = low > nearly_one;
        const double mu = sqrt(3 / (1 + low + low * low)), cube = mu * mu * mu;
        multiply_ordered(z, y, step, size);
        for (int64 at = threadIdx.x; at < size * size; at += blockDim.x) {
            const double scaled = step[at] * (-0.5 * cube);
            step[at] = at / size == at % size ? scaled + 1.5 * mu : scaled;
        }
        __syncthreads();
        multiply_ordered(y, step, next_y, size);
        multiply_ordered(step, z, next_z, size);
        double *before = y;
        y = next_y;
        next_y = before;
        before = z;
        z = next_z;
        next_z = before;
        low = low * (1.5 * mu - 0.5 * cube * low * low);
    }
    const double half = 2 * sqrt(scale);
    double most = 0;
    for (int64 at = threadIdx.x; at < size * size; at += blockDim.x) {
        const int64 row = at / size, column = at % size;
        step[at] = (z[at] + z[column * size + row]) / half;
        most = fmax(most, fabs(step[at]));
    }
    for (unsigned apart = WARP / 2; apart > 0; apart /= 2)
        most = fmax(most, __shfl_xor_sync(0xffffffffu, most, apart));
    if (lane_number() == 0)
        largest[threadIdx.x / WARP] = most;
    __syncthreads();
    for (unsigned warp = 0; warp < blockDim.x / WARP; warp++)
        most = fmax(most, largest[warp]);
    int exponent;
    frexp(most, &exponent);
    for (int64 at = threadIdx.x; at < size * size; at += blockDim.x)
        root[order[at / size] * size + order[at % size]] = rint(ldexp(step[at], bits - exponent));
}
