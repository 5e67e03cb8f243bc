/* Kernels that copy a batch of tensors into a fusion buffer and out of it, each batch in one launch.
 *
 * A launch gets one `ronde_table` by value. Its grid is one-dimensional: an entry has a block for each chunk of it, in
 * the order of the table, and every block looks for its entry. All of a block's threads then move vectors of 16 bytes
 * (on the side of the larger elements), several of them in flight; what is left over, or not aligned to vectors, goes
 * element by element.
 *
 * - `ronde_copy`: bytes, whatever the alignment.
 * - `ronde_fill`: repeats the 8 bytes that stand in `from` instead of an address; `to` is a multiple of 16, and the
 *   number of bytes one of 8.
 * - `ronde_<from>_<to>`: elements of one type turned into another, or the same, scaled by the table's factor and divisor.
 *
 * This is CUDA for NVRTC (scripts/build-kernels) and, with -DRONDE_ON_CPU, C11: tests run the same code without a GPU.
 */
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;
typedef double f64;

#include "table.h"
#ifdef RONDE_ON_CPU
#include "on_cpu.h"
#else
#include "on_gpu.h"
#endif
#include "element.h"

/* Vectors that a thread loads before it stores the first, and elements of those that do not come in vectors. An H100
 * moves 25 GB/s for each multiprocessor and makes a load wait some 0.7 us: 8 bytes for each of 2,048 threads keep its
 * memory busy. The rest is for launches with fewer threads. */
#define VECTORS_IN_FLIGHT 4
#define SINGLES_IN_FLIGHT 2

/* The largest access to memory. */
#define VECTOR_BYTES 16

/* A block's part of an entry: some elements from `first` on. */
struct chunk {
    u32 entry;
    u64 first;
    u32 count;
};

/* This block's part, where `size` is the larger element's. */
INLINE struct chunk chunk_of(const struct ronde_table *table, u32 size)
{
    u32 low = 0, high = table->count;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (table->first_block[middle] <= BLOCK)
            low = middle;
        else
            high = middle;
    }
    u32 elements_max = RONDE_CHUNK_BYTES / size;
    struct chunk chunk;
    chunk.entry = low;
    chunk.first = (u64)(BLOCK - table->first_block[low]) * elements_max;
    u64 elements = table->elements[low];
    u64 left = chunk.first < elements ? elements - chunk.first : 0;
    chunk.count = left < elements_max ? (u32)left : elements_max;
    return chunk;
}

/* What elements become. */
struct conversion {
    enum dtype from, to;
    enum change change;
    struct scaling by;
};

INLINE void convert_vector(u32 target[4], const u32 source[4], u32 lanes, struct conversion how)
{
    if (how.from == how.to && how.change == unchanged) {
        UNROLL
        for (u32 word = 0; word < 4; ++word)
            target[word] = source[word];
        return;
    }
    UNROLL
    for (u32 lane = 0; lane < lanes; ++lane) {
        u64 bits = lane_of(source, lane, size_of(how.from));
        set_lane(target, lane, size_of(how.to), converted(bits, how.from, how.to, how.change, how.by));
    }
}

/* Moves `vectors` vectors of `lanes` elements each, all threads of the block together, `in_flight` at a time. */
INLINE void move(u64 to, u64 from, u32 vectors, u32 lanes, u32 in_flight, struct conversion how)
{
    u32 from_bytes = lanes * size_of(how.from), to_bytes = lanes * size_of(how.to);
    NO_UNROLL
    for (u32 first = THREAD; first < vectors; first += in_flight * RONDE_THREADS) {
        u32 source[VECTORS_IN_FLIGHT][4], target[4];
        UNROLL
        for (u32 turn = 0; turn < in_flight; ++turn) {
            u32 index = first + turn * RONDE_THREADS;
            if (index < vectors)
                load(source[turn], from + (u64)index * from_bytes, from_bytes);
        }
        UNROLL
        for (u32 turn = 0; turn < in_flight; ++turn) {
            u32 index = first + turn * RONDE_THREADS;
            if (index < vectors) {
                convert_vector(target, source[turn], lanes, how);
                store(to + (u64)index * to_bytes, target, to_bytes);
            }
        }
    }
}

/* Moves `count` elements: by `lanes` of them where both sides allow it, and the rest singly. */
INLINE void move_all(u64 to, u64 from, u32 count, u32 lanes, struct conversion how)
{
    u32 moved = 0;
    /* Integers that change take much code for each, so they go one vector at a time. */
    u32 in_flight = how.change == unchanged || is_float(how.from) ? VECTORS_IN_FLIGHT : 1;
    if (from % (lanes * size_of(how.from)) == 0 && to % (lanes * size_of(how.to)) == 0) {
        move(to, from, count / lanes, lanes, in_flight, how);
        moved = count / lanes * lanes;
    }
    to += (u64)moved * size_of(how.to);
    from += (u64)moved * size_of(how.from);
    move(to, from, count - moved, 1, SINGLES_IN_FLIGHT, how);
}

INLINE void convert(const struct ronde_table *table, enum dtype from_dtype, enum dtype to_dtype)
{
    u32 from_size = size_of(from_dtype), to_size = size_of(to_dtype);
    u32 size_max = from_size > to_size ? from_size : to_size;
    struct chunk chunk = chunk_of(table, size_max);
    u64 from = table->from[chunk.entry] + chunk.first * from_size;
    u64 to = table->to[chunk.entry] + chunk.first * to_size;

    u32 lanes = VECTOR_BYTES / size_max;
    struct conversion how;
    how.from = from_dtype, how.to = to_dtype;
    how.by.factor = table->factor, how.by.divisor = table->divisor, how.by.reciprocal = 0;
    /* Floats of two types are always multiplied: by 1 it changes nothing, and saves the code for another case. */
    if (table->factor != 1 || (is_float(from_dtype) && from_dtype != to_dtype)) {
        how.change = scaled;
        move_all(to, from, chunk.count, lanes, how);
    } else if (table->divisor != 1 && !is_float(from_dtype)) {
        how.change = divided;
        how.by.reciprocal = reciprocal_of(table->divisor);
        move_all(to, from, chunk.count, lanes, how);
    } else {
        how.change = unchanged;
        move_all(to, from, chunk.count, lanes, how);
    }
}

INLINE void copy(const struct ronde_table *table)
{
    struct chunk chunk = chunk_of(table, 1);
    u64 from = table->from[chunk.entry] + chunk.first;
    u64 to = table->to[chunk.entry] + chunk.first;
    struct conversion how = {dtype_u8, dtype_u8, unchanged, {1, 1, 0}};
    u64 both = from | to;
    if (both % 16 == 0)
        move_all(to, from, chunk.count, 16, how);
    else if (both % 8 == 0)
        move_all(to, from, chunk.count, 8, how);
    else if (both % 4 == 0)
        move_all(to, from, chunk.count, 4, how);
    else
        move_all(to, from, chunk.count, 2, how);
}

INLINE void fill(const struct ronde_table *table)
{
    struct chunk chunk = chunk_of(table, 1);
    u64 pattern = table->from[chunk.entry];
    u64 to = table->to[chunk.entry] + chunk.first;
    u32 words[4];
    words[0] = words[2] = (u32)pattern;
    words[1] = words[3] = (u32)(pattern >> 32);
    for (u32 at = 16 * THREAD; at < chunk.count; at += 16 * RONDE_THREADS) {
        if (chunk.count - at >= 16)
            store(to + at, words, 16);
        else
            store(to + at, words, 8);
    }
}

#define CONVERSION(X, from, to) X(ronde_##from##_##to, convert(table, dtype_##from, dtype_##to))

/* Every kernel: its name, and what it does with its table. */
#define KERNELS(X)            \
    X(ronde_copy, copy(table)) \
    X(ronde_fill, fill(table)) \
    /* scale factors, averages */ \
    CONVERSION(X, u8, u8)     \
    CONVERSION(X, i8, i8)     \
    CONVERSION(X, i16, i16)   \
    CONVERSION(X, i32, i32)   \
    CONVERSION(X, i64, i64)   \
    CONVERSION(X, f16, f16)   \
    CONVERSION(X, bf16, bf16) \
    CONVERSION(X, f32, f32)   \
    CONVERSION(X, f64, f64)   \
    /* compression */         \
    CONVERSION(X, f32, f16)   \
    CONVERSION(X, f16, f32)   \
    CONVERSION(X, f32, bf16)  \
    CONVERSION(X, bf16, f32)  \
    CONVERSION(X, f64, f16)   \
    CONVERSION(X, f16, f64)   \
    CONVERSION(X, f64, bf16)  \
    CONVERSION(X, bf16, f64)  \
    /* sums that must not wrap before they are divided, and i16, which NCCL does not know */ \
    CONVERSION(X, i16, i32)   \
    CONVERSION(X, i32, i16)   \
    CONVERSION(X, u8, i32)    \
    CONVERSION(X, i32, u8)    \
    CONVERSION(X, i8, i32)    \
    CONVERSION(X, i32, i8)    \
    CONVERSION(X, i32, i64)   \
    CONVERSION(X, i64, i32)

KERNELS(KERNEL)

#ifdef RONDE_ON_CPU
#define ROW(name, body) {#name, name},
const struct ronde_kernel ronde_kernels[] = {KERNELS(ROW){0, 0}};
#endif
