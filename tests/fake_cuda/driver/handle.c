/* Handles: an index, and how often its slot has been used. A handle that was dropped is never valid again. */
#include <stdlib.h>

#include "driver.h"

struct slot {
    uint32_t generation;
    enum kind kind; /* 0: free */
    void *object;
    size_t next_free;
};

static struct slot *slots;
static size_t slots_used, slots_room, first_free; /* slot 0 is none */

void *handle_new(enum kind kind, void *object)
{
    size_t index = first_free;
    if (index) {
        first_free = slots[index].next_free;
    } else {
        if (slots_used + 1 >= slots_room) {
            slots_room = slots_room ? 2 * slots_room : 64;
            slots = realloc(slots, slots_room * sizeof *slots);
            if (!slots)
                abort();
        }
        index = ++slots_used;
        slots[index] = (struct slot){0};
    }
    struct slot *slot = &slots[index];
    slot->generation++;
    slot->kind = kind;
    slot->object = object;
    /* Never so small as to be one of the special streams. */
    return (void *)((uintptr_t)slot->generation << 32 | (uintptr_t)index << 4);
}

static struct slot *find(const void *handle)
{
    size_t index = ((uintptr_t)handle & 0xffffffff) >> 4;
    if (index == 0 || index > slots_used || (uintptr_t)handle & 15)
        return NULL;
    struct slot *slot = &slots[index];
    return slot->kind && slot->generation == (uintptr_t)handle >> 32 ? slot : NULL;
}

void *handle_object(enum kind kind, const void *handle)
{
    struct slot *slot = find(handle);
    return slot && slot->kind == kind ? slot->object : NULL;
}

void handle_drop(const void *handle)
{
    struct slot *slot = find(handle);
    if (!slot)
        return;
    slot->kind = 0;
    slot->next_free = first_free;
    first_free = (size_t)(slot - slots);
}
