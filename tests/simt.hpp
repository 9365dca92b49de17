// Runs CUDA kernels on the CPU, slowly: the threads of a block are fibers of one system thread, resumed in an order that a
// seed chooses anew each round, and stopped where threads must meet. What would hang or be undefined ends with an error.
// Fibers are made once and jumped between: making or swapping contexts asks the system for the mask of signals each time.
#undef _FORTIFY_SOURCE  // would take a jump to another stack for a mistake
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <vector>

#include <setjmp.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __restrict__
#define __shared__ static  // blocks run one after another

namespace simt {

struct Index {
    unsigned x = 0, y = 0, z = 0;
};

enum class State { ready, at_warp, at_block, ended };

struct Fiber {
    jmp_buf here;
    std::vector<char> stack;
    State state = State::ready;
    uint64_t slot = 0;  // what it shows to its warp
};

struct Block {
    std::deque<Fiber> fibers;
    jmp_buf scheduler;
    std::function<void()> body;
    unsigned current = 0;
};

inline Block *block = nullptr;
inline Index blockIdx, gridDim, blockDim, threadIdx;
const unsigned WARP_SIZE = 32;

inline void meet(State where)
{
    Fiber &fiber = block->fibers[block->current];
    fiber.state = where;
    if (_setjmp(fiber.here) == 0)
        _longjmp(block->scheduler, 1);
}

// One thread of a block, then the same of the next one.
inline void enter()
{
    for (;;) {
        block->body();
        meet(State::ended);
    }
}

inline void resume(Fiber &fiber)
{
    if (_setjmp(block->scheduler))
        return;
    if (!fiber.stack.empty())
        _longjmp(fiber.here, 1);
    ucontext_t context;
    getcontext(&context);
    fiber.stack.resize(1 << 16);
    context.uc_stack.ss_sp = fiber.stack.data();
    context.uc_stack.ss_size = fiber.stack.size();
    context.uc_link = nullptr;
    makecontext(&context, enter, 0);
    setcontext(&context);
}

inline bool waiting(unsigned from, unsigned to, State where)
{
    for (unsigned i = from; i < to; i++)
        if (block->fibers[i].state != where)
            return false;
    return true;
}

inline void release(unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        block->fibers[i].state = State::ready;
}

// Returns false where some threads wait for others that never come.
inline bool run_block(unsigned threads, std::mt19937 &order)
{
    std::vector<unsigned> turns(threads);
    for (unsigned i = 0; i < threads; i++)
        turns[i] = i;
    while (!waiting(0, threads, State::ended)) {
        std::shuffle(turns.begin(), turns.end(), order);
        bool moved = false;
        for (unsigned i : turns) {
            if (block->fibers[i].state != State::ready)
                continue;
            moved = true;
            block->current = i;
            threadIdx.x = i;
            resume(block->fibers[i]);
        }
        for (unsigned first = 0; first < threads; first += WARP_SIZE)
            if (waiting(first, first + WARP_SIZE, State::at_warp))
                release(first, first + WARP_SIZE), moved = true;
        if (waiting(0, threads, State::at_block))
            release(0, threads), moved = true;
        if (!moved)
            return false;
    }
    return true;
}

// 0: ran to its end; 1: threads that never meet; 2: a launch of incomplete warps.
inline int run(unsigned blocks, unsigned threads, unsigned seed, std::function<void()> body)
{
    if (blocks == 0 || threads == 0 || threads % WARP_SIZE)
        return 2;
    std::mt19937 order(seed);
    std::vector<unsigned> numbers(blocks);
    for (unsigned i = 0; i < blocks; i++)
        numbers[i] = i;
    std::shuffle(numbers.begin(), numbers.end(), order);
    static Block one;
    one.body = body;
    if (one.fibers.size() < threads)
        one.fibers.resize(threads);
    block = &one;
    gridDim.x = blocks;
    blockDim.x = threads;
    for (unsigned number : numbers) {
        blockIdx.x = number;
        release(0, threads);
        if (!run_block(threads, order)) {
            one.fibers.clear();  // they stand where they never meet
            return 1;
        }
    }
    return 0;
}

// All lanes show a value and look at those of all; they part only when all have looked.
template <typename T, typename Look>
auto shown(T value, Look look)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "a slot holds 64 bits");
    const unsigned first = block->current / WARP_SIZE * WARP_SIZE;
    Fiber &own = block->fibers[block->current];
    own.slot = 0;
    std::memcpy(&own.slot, &value, sizeof(T));
    meet(State::at_warp);
    auto seen = look([first](unsigned lane) {
        T other;
        std::memcpy(&other, &block->fibers[first + lane].slot, sizeof(T));
        return other;
    });
    meet(State::at_warp);
    return seen;
}

template <typename T>
T exchanged(T value, unsigned lane)
{
    return shown(value, [lane](auto of) { return of(lane); });
}

inline unsigned own_lane() { return block->current % WARP_SIZE; }

}  // namespace simt

using simt::blockDim;
using simt::blockIdx;
using simt::gridDim;
using simt::threadIdx;

template <typename T>
T atomicAdd(T *at, T amount)
{
    T before = *at;
    *at += amount;
    return before;
}

inline unsigned atomicOr(unsigned *at, unsigned bits)
{
    const unsigned before = *at;
    *at |= bits;
    return before;
}

inline void __syncthreads() { simt::meet(simt::State::at_block); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }

inline unsigned __ballot_sync(unsigned, bool predicate)
{
    return simt::shown((int)predicate, [](auto of) {
        unsigned found = 0;
        for (unsigned lane = 0; lane < simt::WARP_SIZE; lane++)
            found |= (unsigned)of(lane) << lane;
        return found;
    });
}

template <typename T>
T __shfl_sync(unsigned, T value, unsigned lane)
{
    return simt::exchanged(value, lane % simt::WARP_SIZE);
}

template <typename T>
T __shfl_xor_sync(unsigned, T value, unsigned mask)
{
    return simt::exchanged(value, simt::own_lane() ^ mask);
}

template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned apart)
{
    const unsigned lane = simt::own_lane();
    return simt::exchanged(value, lane >= apart ? lane - apart : lane);
}

// PTX's mma.m16n8k32 of int8, from the definition of its fragments: every lane shows where its numbers are.
inline void multiply_bytes(int *sums, const unsigned *patches, const unsigned *atoms)
{
    struct Held {
        const unsigned *patches, *atoms;
    } held = {patches, atoms};
    simt::shown((const Held *)&held, [sums](auto of) {
        const unsigned group = simt::own_lane() / 4, quarter = simt::own_lane() % 4;
        for (int i = 0; i < 4; i++) {
            const unsigned row = group + (i < 2 ? 0 : 8), column = quarter * 2 + (i & 1);
            for (unsigned k = 0; k < 32; k++) {
                const unsigned among = k % 16 / 4, byte = k % 4;  // which lane of four, and where in its number
                const unsigned left = of(row % 8 * 4 + among)->patches[(row < 8 ? 0 : 1) + (k < 16 ? 0 : 2)];
                const unsigned right = of(column * 4 + among)->atoms[k < 16 ? 0 : 1];
                sums[i] += (signed char)(left >> 8 * byte) * (signed char)(right >> 8 * byte);
            }
        }
        return 0;
    });
}

// The same of mma.m16n8k256, of bits: 32 to a number, and what both have is counted.
inline void multiply_bits(int *sums, const unsigned *rows, const unsigned *columns)
{
    struct Held {
        const unsigned *rows, *columns;
    } held = {rows, columns};
    simt::shown((const Held *)&held, [sums](auto of) {
        const unsigned group = simt::own_lane() / 4, quarter = simt::own_lane() % 4;
        for (int i = 0; i < 4; i++) {
            const unsigned row = group + (i < 2 ? 0 : 8), column = quarter * 2 + (i & 1);
            for (unsigned k = 0; k < 8; k++)  // words of a row
                sums[i] += __builtin_popcount(of(row % 8 * 4 + k % 4)->rows[(row < 8 ? 0 : 1) + k / 4 * 2] &
                                              of(column * 4 + k % 4)->columns[k / 4]);
        }
        return 0;
    });
}
