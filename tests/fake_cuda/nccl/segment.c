/* The shared memory's layout, its bell, and whether its members live. */
#include "segment.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static size_t aligned(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

static size_t header_bytes(int size)
{
    return aligned(sizeof(struct segment) + (size_t)size * sizeof(struct member));
}

size_t segment_bytes(int size)
{
    size_t ranks = (size_t)size;
    return header_bytes(size) + ranks * SLOT_BYTES + ranks * ranks * aligned(sizeof(struct mailbox));
}

unsigned char *segment_slot(struct segment *segment, int rank)
{
    return (unsigned char *)segment + header_bytes(segment->size) + (size_t)rank * SLOT_BYTES;
}

struct mailbox *segment_mailbox(struct segment *segment, int from, int to)
{
    size_t index = (size_t)from * (size_t)segment->size + (size_t)to;
    return (struct mailbox *)(segment_slot(segment, segment->size) + index * aligned(sizeof(struct mailbox)));
}

void segment_ring(struct segment *segment)
{
    atomic_fetch_add(&segment->bell, 1);
    syscall(SYS_futex, &segment->bell, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

void segment_listen(struct segment *segment, uint32_t heard)
{
    struct timespec patience = {0, 2000000};
    syscall(SYS_futex, &segment->bell, FUTEX_WAIT, heard, &patience, NULL, 0);
}

/* From /proc, because kill(0) still finds one that nobody has waited for. */
uint64_t process_started(pid_t process)
{
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    /* The name, in parentheses, may hold anything. State is the first field behind it, the start time comes 19 later. */
    char *at = strrchr(text, ')');
    if (!at || at[2] == 'Z' || at[2] == 'X')
        return 0;
    at++;
    for (int field = 0; field < 19 && at; ++field)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}
