/* A processor in place of the GPU, as run_on_cpu.h offers it. The counterpart is on_gpu.h. */
#ifndef RONDE_ON_CPU_H
#define RONDE_ON_CPU_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_on_cpu.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized" /* it does not see that what is stored was loaded */
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL
#define NO_UNROLL

_Thread_local unsigned int ronde_block, ronde_thread;
#define BLOCK ronde_block
#define THREAD ronde_thread

void ronde_run(const struct ronde_kernel *kernel, const struct ronde_table *table, unsigned int block, unsigned int thread)
{
    ronde_block = block;
    ronde_thread = thread;
    kernel->run(table);
}

#define KERNEL(name, body)                                \
    static void name(const struct ronde_table *table)     \
    {                                                     \
        body;                                             \
    }

/* A GPU stops at an address that is not a multiple of the access. */
static inline void require_aligned(u64 address, u32 bytes)
{
    if (address % bytes) {
        fprintf(stderr, "kernel: access of %u bytes at %#llx, block %u, thread %u\n", bytes, address, BLOCK, THREAD);
        abort();
    }
}

/* Little endian, as a GPU is. */
static inline void load(u32 words[4], u64 address, u32 bytes)
{
    require_aligned(address, bytes);
    words[0] = 0;
    memcpy(words, (const void *)(size_t)address, bytes);
}

static inline void store(u64 address, const u32 words[4], u32 bytes)
{
    require_aligned(address, bytes);
    memcpy((void *)(size_t)address, words, bytes);
}

static inline f32 f32_from_f16(u32 bits)
{
    union { u32 bits; f32 value; } x;
    u32 sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
    if (exponent == 0) {
        x.value = (f32)fraction / 16777216; /* in units of 2^-24; exact */
        x.bits |= sign;
    } else if (exponent == 0x1f) {
        x.bits = sign | 0x7f800000 | fraction << 13;
    } else {
        x.bits = sign | (exponent + 112) << 23 | fraction << 13;
    }
    return x.value;
}

/* To nearest even, in integers. */
static inline u32 f16_from_f32(f32 value)
{
    union { f32 value; u32 bits; } x = {value};
    u32 sign = x.bits >> 16 & 0x8000, magnitude = x.bits & 0x7fffffff, exponent = magnitude >> 23;
    if (magnitude > 0x7f800000)
        return sign | 0x7fff; /* NaN */
    if (exponent >= 143)
        return sign | 0x7c00; /* 2^16 and more */
    if (exponent >= 113) /* normal; rounding may carry up to infinity */
        return sign | (((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13) - (112 << 10));
    if (exponent < 102)
        return sign; /* below half of 2^-24, the smallest */
    u32 significand = (magnitude & 0x7fffff) | 0x800000, shift = 126 - exponent, half = 1u << (shift - 1);
    u32 quotient = significand >> shift, rest = significand & (2 * half - 1);
    return sign | (quotient + (rest > half || (rest == half && quotient & 1)));
}

#endif
