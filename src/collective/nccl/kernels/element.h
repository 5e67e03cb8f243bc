/* Elements: how large they are, how they lie in words of 32 bits, and how one becomes another.
 *
 * Every function here is inlined into kernels that give the types as constants, so that of each switch one case is
 * left.
 *
 * Arithmetic is that of collective/kernels on the CPU: f16, bf16 and f32 are multiplied in f32, f64 in f64, and rounded
 * once, to nearest even. Integers are multiplied and divided in f64 and saturate; without a factor they are divided as
 * integers and wrap.
 */
#ifndef RONDE_ELEMENT_H
#define RONDE_ELEMENT_H

enum dtype { dtype_u8, dtype_i8, dtype_i16, dtype_i32, dtype_i64, dtype_f16, dtype_bf16, dtype_f32, dtype_f64 };

/* What happens to a value between its two types. */
enum change { unchanged, divided, scaled };

/* The numbers for it. */
struct scaling {
    f64 factor;
    u32 divisor;
    u64 reciprocal; /* of the divisor, where a value is divided */
};

/* 1 / divisor in units of 2^-64, rounded up; not for 1. */
INLINE u64 reciprocal_of(u32 divisor)
{
    return 0xffffffffffffffff / divisor + 1;
}

INLINE u32 size_of(enum dtype dtype)
{
    switch (dtype) {
    case dtype_u8:
    case dtype_i8:
        return 1;
    case dtype_i16:
    case dtype_f16:
    case dtype_bf16:
        return 2;
    case dtype_i32:
    case dtype_f32:
        return 4;
    default:
        return 8;
    }
}

INLINE int is_float(enum dtype dtype)
{
    return dtype >= dtype_f16;
}

/* The bits of an element among others in `words`. */
INLINE u64 lane_of(const u32 words[4], u32 lane, u32 size)
{
    if (size == 8)
        return words[2 * lane] | (u64)words[2 * lane + 1] << 32;
    u32 bit = 8 * size * lane;
    return words[bit / 32] >> bit % 32;
}

/* Puts the low bits of `bits` there; lanes come in ascending order. */
INLINE void set_lane(u32 words[4], u32 lane, u32 size, u64 bits)
{
    if (size == 8) {
        words[2 * lane] = (u32)bits;
        words[2 * lane + 1] = (u32)(bits >> 32);
        return;
    }
    u32 bit = 8 * size * lane, mask = 0xffffffff >> (32 - 8 * size);
    u32 before = bit % 32 ? words[bit / 32] : 0;
    words[bit / 32] = before | ((u32)bits & mask) << bit % 32;
}

/* Rounds to f32 such that a second rounding, to a narrower type, gives what a single one would: toward zero, the last
 * bit set if anything was lost ("round to odd"; Boldo and Melquiond, 2008). */
INLINE f32 odd_from_f64(f64 value)
{
    union { f32 value; u32 bits; } near;
    near.value = (f32)value;
    f64 back = near.value;
    if (back == value || value != value)
        return near.value;
    if (value < 0 ? back < value : back > value)
        near.bits -= 1;
    near.bits |= 1;
    return near.value;
}

/* To nearest even; a NaN keeps its upper bits and is quiet. */
INLINE u32 bf16_from_f32(f32 value)
{
    union { f32 value; u32 bits; } x;
    x.value = value;
    u32 rounded = (x.bits + 0x7fff + (x.bits >> 16 & 1)) >> 16;
    return value == value ? rounded : x.bits >> 16 | 0x40;
}

INLINE f32 f32_from_bits(u32 bits)
{
    union { u32 bits; f32 value; } x;
    x.bits = bits;
    return x.value;
}

INLINE u32 bits_from_f32(f32 value)
{
    union { f32 value; u32 bits; } x;
    x.value = value;
    return x.bits;
}

INLINE f64 f64_from_bits(u64 bits)
{
    union { u64 bits; f64 value; } x;
    x.bits = bits;
    return x.value;
}

INLINE u64 bits_from_f64(f64 value)
{
    union { f64 value; u64 bits; } x;
    x.value = value;
    return x.bits;
}

/* A float of 16 or 32 bits, exact. */
INLINE f32 single_from(u64 bits, enum dtype from)
{
    switch (from) {
    case dtype_f16:
        return f32_from_f16((u32)bits);
    case dtype_bf16:
        return f32_from_bits((u32)bits << 16);
    default:
        return f32_from_bits((u32)bits);
    }
}

INLINE u32 single_to(f32 value, enum dtype to)
{
    switch (to) {
    case dtype_f16:
        return f16_from_f32(value);
    case dtype_bf16:
        return bf16_from_f32(value);
    default:
        return bits_from_f32(value);
    }
}

/* A float of any size, where one side is f64. */
INLINE f64 double_from(u64 bits, enum dtype from)
{
    return from == dtype_f64 ? f64_from_bits(bits) : (f64)single_from(bits, from);
}

INLINE u64 double_to(f64 value, enum dtype to)
{
    return to == dtype_f64 ? bits_from_f64(value) : single_to(odd_from_f64(value), to);
}

INLINE i64 whole_from(u64 bits, enum dtype from)
{
    switch (from) {
    case dtype_u8:
        return (u8)bits;
    case dtype_i8:
        return (i8)bits;
    case dtype_i16:
        return (i16)bits;
    case dtype_i32:
        return (i32)bits;
    default:
        return (i64)bits;
    }
}

/* `value / divisor`, toward zero. In 32 bits it is a multiplication by the reciprocal, whose 64 bits are enough for every
 * quotient to be exact (Lemire, Kaser and Kurz, 2019): a division costs a GPU several times as much as the memory
 * does. */
INLINE i64 quotient(i64 value, struct scaling by, enum dtype from)
{
    u64 magnitude = value < 0 ? 0 - (u64)value : (u64)value;
    u64 result;
    if (from == dtype_i64)
        result = magnitude / by.divisor;
    else /* the upper half of a product of 32 and 64 bits */
        result = (magnitude * (by.reciprocal >> 32) + (magnitude * (u32)by.reciprocal >> 32)) >> 32;
    return value < 0 ? (i64)(0 - result) : (i64)result;
}

/* The nearest value of `to` toward zero, its limits beyond them, 0 for NaN. */
INLINE i64 saturated(f64 value, enum dtype to)
{
    u32 bits = 8 * size_of(to);
    i64 high = to == dtype_u8 ? 0xff : (i64)(0xffffffffffffffff >> (65 - bits));
    i64 low = to == dtype_u8 ? 0 : -high - 1;
    i64 inside = value == value ? (i64)value : 0;
    return value >= (f64)high ? high : value <= (f64)low ? low : inside;
}

/* One element: its bits as `from` turned into those as `to`. Bits above the type's own are neither read nor cleared. */
INLINE u64 converted(u64 bits, enum dtype from, enum dtype to, enum change change, struct scaling by)
{
    if (from == dtype_f64 || to == dtype_f64) {
        f64 x = double_from(bits, from);
        return double_to(change == scaled ? x * by.factor : x, to);
    }
    if (is_float(from)) {
        f32 x = single_from(bits, from);
        return single_to(change == scaled ? x * (f32)by.factor : x, to);
    }
    i64 x = whole_from(bits, from);
    if (change == scaled) {
        /* As in host memory, where nothing is wider for the way: only a sum that is divided is not wrapped before. */
        enum dtype own = size_of(from) < size_of(to) ? from : to;
        if (by.divisor == 1)
            x = whole_from((u64)x, own);
        return (u64)saturated((f64)x * by.factor / by.divisor, own);
    }
    return (u64)(change == divided ? quotient(x, by, from) : x);
}

#endif
