// Whitening: second moments of patches, their inverse roots, the product with these, and unit vectors. Pixels and whitenings are
// whole numbers in float64. Their products are made of integers: exact, and as fast on cards that are slow in float64.

const int SIDE = 64, DEPTH = 16, SPAN = 4;
const unsigned LINE = SIDE / SPAN;
// A block of LINE x LINE threads makes SIDE x SIDE sums, each thread those of SPAN x SPAN that lie LINE apart, from DEPTH terms
// at a time in shared memory.

// A matrix of whole numbers of at most 31 bits: the number of a side, a row of the left factor or a column of the right one, and
// a term lies at side * side_step + term * term_step.
struct Factor {
    const double *numbers;
    int64 sides, side_step, term_step;
};

// tile[term][side] = the numbers from a term and a side on; zero beyond the last.
__device__ inline void stage(const Factor &from, int64 side, int64 term, int64 last, int (*tile)[SIDE + 1])
{
    for (unsigned at = threadIdx.x; at < SIDE * DEPTH; at += blockDim.x) {
        // neighbouring threads read what lies together
        const unsigned deep = from.term_step == 1 ? at % DEPTH : at / SIDE;
        const unsigned across = from.term_step == 1 ? at / DEPTH : at % SIDE;
        const bool there = term + deep < last && side + across < from.sides;
        tile[deep][across] =
            there ? (int)from.numbers[(side + across) * from.side_step + (term + deep) * from.term_step] : 0;
    }
}

// sums[i][j] += Σ of left x right over the terms from `first` to `last`, of row `row` + LINE i and column `column` + LINE j, to
// which this thread's own place is added.
__device__ inline void multiply_whole(
    const Factor &left, const Factor &right, int64 row, int64 column, int64 first, int64 last, int64 (&sums)[SPAN][SPAN])
{
    __shared__ int rows[DEPTH][SIDE + 1], columns[DEPTH][SIDE + 1];
    const unsigned down = threadIdx.x / LINE, across = threadIdx.x % LINE;
    for (int64 term = first; term < last; term += DEPTH) {
        stage(left, row, term, last, rows);
        stage(right, column, term, last, columns);
        __syncthreads();
        for (int deep = 0; deep < DEPTH; deep++)
            UNROLLED for (int i = 0; i < SPAN; i++)
                UNROLLED for (int j = 0; j < SPAN; j++)
                    sums[i][j] += (int64)rows[deep][down + LINE * i] * columns[deep][across + LINE * j];
        __syncthreads();
    }
}

const int64 TERMS = 1024;  // patches whose moments a block adds up

// moments[image] = Σ m mᵀ over its patches m, `each` of the `patches` of `centred` (pixels, patches); where these are more than
// TERMS, the sums are added to what is there. A block takes a tile on or above the diagonal and writes it below, too.
extern "C" __global__ void add_moments(const double *centred, int64 pixels, int64 patches, int64 each, int64 *moments)
{
    const int64 tiles = (pixels + SIDE - 1) / SIDE, runs = (each + TERMS - 1) / TERMS;
    const int64 image = blockIdx.x / (tiles * (tiles + 1) / 2 * runs), run = blockIdx.x % runs;
    int64 down = 0, across = blockIdx.x / runs % (tiles * (tiles + 1) / 2);
    for (; across >= tiles - down; down++)
        across -= tiles - down;
    across += down;
    const Factor factor = {centred + image * each, pixels, patches, 1};
    const int64 last = (run + 1) * TERMS < each ? (run + 1) * TERMS : each;
    int64 sums[SPAN][SPAN] = {};
    multiply_whole(factor, factor, down * SIDE, across * SIDE, run * TERMS, last, sums);
    int64 *out = moments + image * pixels * pixels;
    for (int i = 0; i < SPAN; i++)
        for (int j = 0; j < SPAN; j++) {
            const int64 row = down * SIDE + threadIdx.x / LINE + LINE * i;
            const int64 column = across * SIDE + threadIdx.x % LINE + LINE * j;
            if (row >= pixels || column >= pixels)
                continue;
            int64 *own = out + row * pixels + column, *other = out + column * pixels + row;
            if (runs == 1) {  // nobody else has a share, and zeros need not be written before
                *own = *other = sums[i][j];
                continue;
            }
            add_to(own, sums[i][j]);
            if (down != across)
                add_to(other, sums[i][j]);
        }
}

// out[image] = W m over patches m of `centred` (pixels, patches), of `each` of which an image is: (pixels, each), W its own of
// `whiten` (images, pixels, pixels).
extern "C" __global__ void whiten_patches(
    const double *whiten, const double *centred, int64 pixels, int64 patches, int64 each, double *out)
{
    const int64 tiles = (pixels + SIDE - 1) / SIDE, runs = (each + SIDE - 1) / SIDE;
    const int64 image = blockIdx.x / (tiles * runs);
    const int64 top = blockIdx.x % tiles * SIDE, left = blockIdx.x / tiles % runs * SIDE;
    const Factor matrix = {whiten + image * pixels * pixels, pixels, pixels, 1};
    const Factor own = {centred + image * each, each, 1, patches};
    int64 sums[SPAN][SPAN] = {};
    multiply_whole(matrix, own, top, left, 0, pixels, sums);
    double *to = out + image * pixels * each;
    for (int i = 0; i < SPAN; i++)
        for (int j = 0; j < SPAN; j++) {
            const int64 row = top + threadIdx.x / LINE + LINE * i, column = left + threadIdx.x % LINE + LINE * j;
            if (row < pixels && column < each)
                to[row * each + column] = (double)sums[i][j];
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

// roots[b] = (ridge I + moment / patches)^(-1/2) times a power of two, in whole numbers of at most 2^bits, of image b: see
// `inverse_root` and `integer_whitening`, whose numbers these are. A block takes an image; `room` has five matrices for each.
// order : where each pixel of a patch lies in the patch of the canonical view.
extern "C" __global__ void image_roots(
    const int64 *moments, int64 patches, double ridge, double nearly_one, const int64 *order, int64 size, int bits,
    double *room, double *roots)
{
    __shared__ double largest[WARP];
    const int64 first = blockIdx.x * size * size, *own = moments + first;
    double *root = roots + first, *y = room + 5 * first;
    double *z = y + size * size, *step = z + size * size, *next_y = step + size * size, *next_z = next_y + size * size;
    int64 trace = 0;
    for (int64 at = 0; at < size; at++)
        trace += own[at * size + at];
    const double scale = (double)trace / (double)patches + (double)size * ridge;
    for (int64 at = threadIdx.x; at < size * size; at += blockDim.x) {
        const int64 row = at / size, column = at % size;
        const double mean = (double)own[order[row] * size + order[column]] / (double)patches;
        y[at] = (row == column ? mean + ridge : mean) / scale;
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
