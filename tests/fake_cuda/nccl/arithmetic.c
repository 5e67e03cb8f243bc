/* Reductions. Half precision is summed in float and rounded once. */
#include <stdlib.h>
#include <string.h>

#include "communicator.h"

static const struct {
    size_t bytes;
    const char *name;
} types[ncclNumTypes] = {{1, "int8"},    {1, "uint8"},   {4, "int32"},   {4, "uint32"},  {8, "int64"},
                         {8, "uint64"},  {2, "float16"}, {4, "float32"}, {8, "float64"}, {2, "bfloat16"}};

size_t type_bytes(ncclDataType_t type)
{
    return types[type].bytes;
}

const char *type_name(ncclDataType_t type)
{
    return types[type].name;
}

static float from_f16(uint16_t bits)
{
    _Float16 value;
    memcpy(&value, &bits, 2);
    return (float)value;
}

static uint16_t to_f16(float value)
{
    _Float16 half = (_Float16)value;
    uint16_t bits;
    memcpy(&bits, &half, 2);
    return bits;
}

static float from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

/* To nearest even; NaN stays NaN. */
static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (value != value)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define SAME(x) (x)

/* Sums and products wrap, so they are made of unsigned numbers; `wide` compares and divides. */
#define REDUCE(stored, wide, modular, load, store)                                   \
    for (size_t i = 0; i < count; ++i) {                                             \
        wide so_far = load(((const stored *)from[0])[i]);                            \
        for (int source = 1; source < sources; ++source) {                           \
            wide next = load(((const stored *)from[source])[i]);                     \
            switch (op) {                                                            \
            case ncclProd: so_far = (wide)((modular)so_far * (modular)next); break;  \
            case ncclMax: so_far = so_far < next ? next : so_far; break;             \
            case ncclMin: so_far = next < so_far ? next : so_far; break;             \
            default: so_far = (wide)((modular)so_far + (modular)next);               \
            }                                                                        \
        }                                                                            \
        if (op == ncclAvg)                                                           \
            so_far = so_far / (wide)sources;                                         \
        ((stored *)to)[i] = (stored)store(so_far);                                   \
    }                                                                                \
    break

void reduce(void *to, unsigned char *const from[], int sources, size_t count, ncclDataType_t type, ncclRedOp_t op)
{
    switch (type) {
    case ncclInt8: REDUCE(int8_t, int8_t, uint8_t, SAME, SAME);
    case ncclUint8: REDUCE(uint8_t, uint8_t, uint8_t, SAME, SAME);
    case ncclInt32: REDUCE(int32_t, int32_t, uint32_t, SAME, SAME);
    case ncclUint32: REDUCE(uint32_t, uint32_t, uint32_t, SAME, SAME);
    case ncclInt64: REDUCE(int64_t, int64_t, uint64_t, SAME, SAME);
    case ncclUint64: REDUCE(uint64_t, uint64_t, uint64_t, SAME, SAME);
    case ncclFloat16: REDUCE(uint16_t, float, float, from_f16, to_f16);
    case ncclFloat32: REDUCE(float, float, float, SAME, SAME);
    case ncclFloat64: REDUCE(double, double, double, SAME, SAME);
    case ncclBfloat16: REDUCE(uint16_t, float, float, from_bf16, to_bf16);
    default: abort();
    }
}
