/* Allocations: between memory.c, which keeps them, and allocate.c, which gives them out. The lock is held throughout. */
#ifndef FAKE_CUDA_ALLOCATION_H
#define FAKE_CUDA_ALLOCATION_H

#include "driver.h"

enum state {
    PROMISED, /* allocated on a stream that has not come to it yet */
    LIVE,
    LEAVING, /* to be freed by a stream that has not come to it yet */
    DEAD,
};

struct allocation {
    enum memory memory;
    enum state state;
    struct context *context;
    uintptr_t start;
    size_t bytes;
    size_t mapped;
    unsigned char *host; /* the bytes; of pinned memory they lie at `start` */
    unsigned holds;      /* operations that touch it just now, and streams that will make or free it */
};

/* Null when the host has no more. */
struct allocation *allocation_make(struct context *context, enum memory memory, size_t bytes);
/* The live one that has this byte, or null. */
struct allocation *allocation_find(uintptr_t address);
/* It is not an allocation any more, from now on; its bytes go when nobody holds it. */
void allocation_retire(struct allocation *allocation);
void allocation_drop_hold(struct allocation *allocation);

#endif
