/* Memory that the processes of one communicator share, and how they meet there. */
#ifndef FAKE_NCCL_SEGMENT_H
#define FAKE_NCCL_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    SLOT_BYTES = 1 << 20,  /* what a rank shows the others at a time */
    LETTER_BYTES = 1 << 16, /* what it sends to one of them at a time */
    TEXT_BYTES = 200,
};

/* What all ranks must agree on in a collective. */
struct description {
    int kind, type, op, root;
    uint64_t count;
};

/* Whether a rank has left. */
enum departure { PRESENT, DESTROYED, ABORTED };

struct member {
    pid_t process;
    uint64_t started; /* in the system's clock ticks: another process may get the same number */
    char host[64];
    char bus[16];           /* PCI address of the device */
    _Atomic int gone;       /* enum departure */
    _Atomic uint64_t steps; /* how many meetings it has come to */
    struct description description;
};

/* From one rank to another: one piece at a time. */
struct mailbox {
    _Atomic uint32_t full;
    _Atomic uint32_t refused; /* the receiver expected another size */
    uint32_t bytes;
    uint64_t total;
    unsigned char letter[LETTER_BYTES];
};

struct segment {
    _Atomic uint32_t bell; /* rings whenever anything here changes */
    int size;
    struct member members[];
    /* a slot of SLOT_BYTES for each rank, then a mailbox from each to each */
};

size_t segment_bytes(int size);
unsigned char *segment_slot(struct segment *segment, int rank);
struct mailbox *segment_mailbox(struct segment *segment, int from, int to);

/* Wakes all who wait. */
void segment_ring(struct segment *segment);
/* Waits until the bell is no longer `heard`, or some milliseconds. */
void segment_listen(struct segment *segment, uint32_t heard);

/* 0 if there is no such process. */
uint64_t process_started(pid_t process);

#endif
