/* What a kernel is told: up to 170 stretches of memory, and what to do to each element on the way. */
#ifndef RONDE_TABLE_H
#define RONDE_TABLE_H

/* As many as fit in 4096 bytes, the most that a kernel's parameters may take on any driver. */
#define RONDE_ENTRIES 170

/* Threads in a block. */
#define RONDE_THREADS 256

/* Bytes that one block does of an entry, counted in the larger of the two element types. */
#define RONDE_CHUNK_BYTES 32768

struct ronde_table {
    double factor;        /* multiplies each element; 1: not */
    unsigned int divisor; /* divides integers, toward zero; 1: not */
    unsigned int count;   /* entries in use, 1 to RONDE_ENTRIES */
    /* Addresses, aligned to their elements. Equal ones need elements of equal size; others must not overlap. */
    unsigned long long from[RONDE_ENTRIES];
    unsigned long long to[RONDE_ENTRIES];
    unsigned int elements[RONDE_ENTRIES];    /* at least 1 */
    unsigned int first_block[RONDE_ENTRIES]; /* ascending from 0; a block does the chunk block - first_block of its entry */
};

#endif
