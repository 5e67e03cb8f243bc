/* The machine that the kernels run on, as NVRTC compiles for it. The counterpart is on_cpu.h. */
#ifndef RONDE_ON_GPU_H
#define RONDE_ON_GPU_H

#define INLINE static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

#define THREAD threadIdx.x
#define BLOCK blockIdx.x

/* The table stays where the driver puts it: constant memory, which all threads of a block read at the same place. */
#define KERNEL(name, body)                                                                                    \
    extern "C" __global__ void __launch_bounds__(RONDE_THREADS) name(const ronde_table given)                   \
    {                                                                                                         \
        const ronde_table *table = &given;                                                                    \
        body;                                                                                                 \
    }

/* One access to global memory of 1, 2, 4, 8 or 16 bytes, which the address is a multiple of. As they are volatile, loads
 * stay together before the stores, as written. */
INLINE void load(u32 words[4], u64 address, u32 bytes)
{
    u16 narrow;
    switch (bytes) {
    case 16:
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "l"(address));
        break;
    case 8:
        asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "l"(address));
        break;
    case 4:
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(words[0]) : "l"(address));
        break;
    case 2:
        asm volatile("ld.global.u16 %0, [%1];" : "=h"(narrow) : "l"(address));
        words[0] = narrow;
        break;
    default:
        asm volatile("ld.global.u8 %0, [%1];" : "=r"(words[0]) : "l"(address));
    }
}

INLINE void store(u64 address, const u32 words[4], u32 bytes)
{
    switch (bytes) {
    case 16:
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(words[0]), "r"(words[1]),
                     "r"(words[2]), "r"(words[3])
                     : "memory");
        break;
    case 8:
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(words[0]), "r"(words[1]) : "memory");
        break;
    case 4:
        asm volatile("st.global.u32 [%0], %1;" ::"l"(address), "r"(words[0]) : "memory");
        break;
    case 2:
        asm volatile("st.global.u16 [%0], %1;" ::"l"(address), "h"((u16)words[0]) : "memory");
        break;
    default:
        asm volatile("st.global.u8 [%0], %1;" ::"l"(address), "r"(words[0]) : "memory");
    }
}

/* The device's own conversions: NVRTC comes without cuda_fp16.h. */
INLINE f32 f32_from_f16(u32 bits)
{
    f32 x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((u16)bits));
    return x;
}

INLINE u32 f16_from_f32(f32 x)
{
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

#endif
