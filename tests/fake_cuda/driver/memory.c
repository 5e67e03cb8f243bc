/* Memory of the devices and pinned memory of the host, and who may touch what.
 *
 * A device address is only reserved, never readable: the bytes lie elsewhere, and operations are told where. So a host
 * that follows a pointer to the device dies, as it would with a real one. An address is not given again for long after
 * it was freed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "allocation.h"

static const size_t PAGE = 4096;
/* New memory holds this, NaN in any float; for more than so much of it, it would take too long. */
static const int POISON = 0xff;
static const size_t POISON_BYTES_MAX = 64 << 20;

static struct allocation **table; /* by address */
static size_t table_used, table_room;

/* Reservations of what was freed last. */
enum { FORMER = 1024 };
static struct {
    uintptr_t start;
    size_t bytes, mapped;
} former[FORMER];
static size_t former_next;

/* The first in the table that ends behind the address. */
static size_t position(uintptr_t address)
{
    size_t low = 0, high = table_used;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle]->start + table[middle]->mapped <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct allocation *allocation_find(uintptr_t address)
{
    size_t at = position(address);
    if (at == table_used || address < table[at]->start || address >= table[at]->start + table[at]->bytes)
        return NULL;
    return table[at];
}

struct allocation *allocation_make(struct context *context, enum memory memory, size_t bytes)
{
    struct allocation *allocation = calloc(1, sizeof *allocation);
    if (!allocation)
        abort();
    allocation->mapped = (bytes + PAGE - 1) / PAGE * PAGE;
    void *host = mmap(NULL, allocation->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *start = host;
    if (memory == DEVICE_MEMORY)
        start = mmap(NULL, allocation->mapped + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host == MAP_FAILED || start == MAP_FAILED) {
        if (host != MAP_FAILED)
            munmap(host, allocation->mapped);
        free(allocation);
        return NULL;
    }
    allocation->memory = memory;
    allocation->state = LIVE;
    allocation->context = context;
    allocation->start = (uintptr_t)start;
    allocation->bytes = bytes;
    allocation->host = host;
    memset(host, POISON, bytes < POISON_BYTES_MAX ? bytes : POISON_BYTES_MAX);

    if (table_used == table_room) {
        table_room = table_room ? 2 * table_room : 64;
        table = realloc(table, table_room * sizeof *table);
        if (!table)
            abort();
    }
    size_t at = position(allocation->start);
    memmove(table + at + 1, table + at, (table_used - at) * sizeof *table);
    table[at] = allocation;
    table_used++;
    return allocation;
}

void allocation_drop_hold(struct allocation *allocation)
{
    if (--allocation->holds || allocation->state != DEAD)
        return;
    munmap(allocation->host, allocation->mapped);
    if (allocation->memory == DEVICE_MEMORY) {
        size_t slot = former_next++ % FORMER;
        if (former[slot].start)
            munmap((void *)former[slot].start, former[slot].mapped);
        former[slot].start = allocation->start;
        former[slot].bytes = allocation->bytes;
        former[slot].mapped = allocation->mapped + PAGE;
    }
    free(allocation);
}

void allocation_retire(struct allocation *allocation)
{
    size_t at = position(allocation->start);
    memmove(table + at, table + at + 1, (table_used - at - 1) * sizeof *table);
    table_used--;
    if (allocation->memory == DEVICE_MEMORY)
        allocation->context->allocated -= allocation->bytes;
    allocation->state = DEAD;
    allocation->holds++;
    allocation_drop_hold(allocation);
}

bool memory_is(enum memory memory, const void *address, size_t bytes)
{
    struct allocation *allocation = allocation_find((uintptr_t)address);
    return allocation && allocation->memory == memory && allocation->state == LIVE &&
           bytes <= allocation->start + allocation->bytes - (uintptr_t)address;
}

/* What this thread's operation holds. */
static _Thread_local struct allocation **held;
static _Thread_local size_t held_used, held_room;

static const char *complaint(const struct allocation *allocation, enum memory memory, uintptr_t address, size_t bytes,
                             char text[200])
{
    if (!allocation) {
        for (size_t i = 0; i < FORMER; ++i)
            if (former[i].start <= address && address < former[i].start + former[i].bytes)
                return "freed already";
        return "in no allocation";
    }
    if (allocation->memory != memory)
        return memory == DEVICE_MEMORY ? "memory of the host" : "memory of a device";
    if (memory == DEVICE_MEMORY && allocation->context != running->context)
        return "memory of another device";
    if (allocation->state == PROMISED)
        return "not allocated yet in the order of streams";
    if (bytes > allocation->start + allocation->bytes - address) {
        snprintf(text, 200, "ends %zu bytes behind its allocation of %zu bytes",
                 (size_t)(address + bytes - allocation->start - allocation->bytes), allocation->bytes);
        return text;
    }
    return NULL;
}

void *memory_touch(enum memory memory, uintptr_t address, size_t bytes, const char *who)
{
    char text[200];
    void *host = NULL;
    pthread_mutex_lock(&driver_lock);
    struct allocation *allocation = allocation_find(address);
    const char *wrong = complaint(allocation, memory, address, bytes, text);
    if (wrong) {
        context_break(running->context, CUDA_ERROR_ILLEGAL_ADDRESS, "%s on stream %u: %zu bytes at %#zx: %s", who,
                      running->number, bytes, (size_t)address, wrong);
    } else {
        if (held_used == held_room) {
            held_room = held_room ? 2 * held_room : 16;
            held = realloc(held, held_room * sizeof *held);
            if (!held)
                abort();
        }
        held[held_used++] = allocation;
        allocation->holds++;
        host = allocation->host + (address - allocation->start);
    }
    pthread_mutex_unlock(&driver_lock);
    return host;
}

void *fake_cuda_touch(CUdeviceptr address, size_t bytes, const char *who)
{
    return memory_touch(DEVICE_MEMORY, address, bytes, who);
}

void memory_untouch(void)
{
    if (!held_used)
        return;
    pthread_mutex_lock(&driver_lock);
    while (held_used)
        allocation_drop_hold(held[--held_used]);
    pthread_mutex_unlock(&driver_lock);
}

void memory_thread_end(void)
{
    free(held);
}

void memory_release(struct context *context)
{
    for (size_t i = table_used; i-- > 0;)
        if (table[i]->context == context)
            allocation_retire(table[i]);
}
