// What all kernels share: 64-bit numbers, exact additions, and the warp that a thread belongs to. A warp takes a patch, or
// another piece of the work, at a time, and goes on with the one that lies a grid further.

typedef long long int64;

const unsigned WARP = 32;

#ifdef __CUDACC_RTC__
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED
#endif

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
