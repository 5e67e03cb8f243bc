/* Benchmark of MPI's collective operations on one large buffer of float32: whole, and in a loop over chunks.
 *
 *   mpirun -np 2 mpi_operations BYTES STEPS > out.json
 *
 * BYTES is the buffer of the operation: what an allreduce, a reducescatter and an alltoall read on every rank, what a
 * broadcast sends, what an allgather gives. Rank 0 prints one JSON object: for each operation a row per way of doing it.
 *
 *   whole              one call
 *   chunked_<size>     a loop of the same call, <size> of the buffer at a time. What arrives lies chunk by chunk, except
 *                      in an allreduce and a broadcast, where that is no difference: an alltoall's result, say, is the
 *                      results of the alltoalls of the chunks, one after another. A user who wants it as from one call
 *                      needs what follows, or copies.
 *   chunked_v_<size>   allgather and alltoall: the same with MPI_Allgatherv and MPI_Alltoallv, whose displacements put
 *                      everything where one call would
 *
 * Allreduce and broadcast are in place, the others have two buffers. Buffers are the caller's and warm. A barrier
 * precedes each step; a step's time is that of its slowest rank. Each way is checked once, every element, before it is
 * timed.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WARMUP_STEPS = 5,
    STEPS_MAX = 100000,
    RANKS_MAX = 256,
    KIB_ELEMENTS = 256, /* 1 KiB of float32 */
    VALUES = 1000,      /* small enough that sums are exact */
};

/* A buffer's elements: of all ranks together in an allgather and an alltoall, so a share is a rank's or a pair's. */
struct job {
    size_t total, share;
    float *input, *output;
};

struct operation {
    const char *name;
    void (*call)(const struct job *, size_t start, size_t count);
    void (*call_v)(const struct job *, size_t start, size_t count);
    int output_has_shares; /* one share of every rank, in rank order */
    size_t input_elements, output_elements;
};

static int rank, size;

static void fail(const char *what, const char *argument) {
    fprintf(stderr, "mpi_operations: %s: %s\n", what, argument);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* The calls: of the chunk that begins at element `start` of the buffer and has `count`, a multiple of the ranks. */

static void allreduce(const struct job *j, size_t start, size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, j->input + start, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void broadcast(const struct job *j, size_t start, size_t count) {
    MPI_Bcast(j->input + start, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void allgather(const struct job *j, size_t start, size_t count) {
    int each = (int)count / size;
    MPI_Allgather(j->input + start / size, each, MPI_FLOAT, j->output + start, each, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reducescatter(const struct job *j, size_t start, size_t count) {
    MPI_Reduce_scatter_block(j->input + start, j->output + start / size, (int)count / size, MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD);
}

static void alltoall(const struct job *j, size_t start, size_t count) {
    int each = (int)count / size;
    MPI_Alltoall(j->input + start, each, MPI_FLOAT, j->output + start, each, MPI_FLOAT, MPI_COMM_WORLD);
}

/* Equal counts, and displacements as in the whole buffer. */
static void places(const struct job *j, size_t start, size_t count, int *counts, int *displacements) {
    for (int r = 0; r < size; r++) {
        counts[r] = (int)count / size;
        displacements[r] = (int)(r * j->share + start / size);
    }
}

static void allgather_v(const struct job *j, size_t start, size_t count) {
    int counts[RANKS_MAX], displacements[RANKS_MAX];
    places(j, start, count, counts, displacements);
    MPI_Allgatherv(j->input + start / size, counts[rank], MPI_FLOAT, j->output, counts, displacements, MPI_FLOAT,
                   MPI_COMM_WORLD);
}

static void alltoall_v(const struct job *j, size_t start, size_t count) {
    int counts[RANKS_MAX], displacements[RANKS_MAX];
    places(j, start, count, counts, displacements);
    MPI_Alltoallv(j->input, counts, displacements, MPI_FLOAT, j->output, counts, displacements, MPI_FLOAT, MPI_COMM_WORLD);
}

static void in_chunks(const struct job *j, void (*call)(const struct job *, size_t, size_t), size_t chunk) {
    for (size_t start = 0; start < j->total; start += chunk)
        call(j, start, j->total - start < chunk ? j->total - start : chunk);
}

/* Checks. */

static float value(int of, size_t index) { return (float)((index + 7 * (size_t)of) % VALUES); }

/* Position of an element of a share in a buffer with the layout of chunks. */
static void locate(const struct job *j, size_t place, size_t chunk, int *share, size_t *element) {
    size_t start = place / chunk * chunk;
    size_t count = j->total - start < chunk ? j->total - start : chunk;
    *share = (int)((place - start) / (count / size));
    *element = start / size + (place - start) % (count / size);
}

/* Inverse of the position. */
static size_t place_of(const struct job *j, int share, size_t element, size_t chunk) {
    size_t start = element / (chunk / size) * chunk;
    size_t count = j->total - start < chunk ? j->total - start : chunk;
    return start + share * (count / size) + (element - start / size);
}

static float expected(const struct operation *o, const struct job *j, size_t place, size_t chunk) {
    int from = 0;
    size_t at = place;
    if (o->output_has_shares)
        locate(j, place, chunk, &from, &at);
    if (o->call == broadcast)
        return value(0, place);
    if (o->call == allgather)
        return value(from, at);
    if (o->call == alltoall)
        return value(from, place_of(j, rank, at, chunk));
    if (o->call == reducescatter)
        at = place_of(j, rank, place, chunk);
    float sum = 0;
    for (int r = 0; r < size; r++)
        sum += value(r, at);
    return sum;
}

/* Afterwards the input holds zeros, so that repeated sums stay finite. */
static void check(const struct operation *o, const struct job *j, const char *way,
                  void (*call)(const struct job *, size_t, size_t), size_t chunk, size_t layout) {
    for (size_t i = 0; i < o->input_elements; i++)
        j->input[i] = value(rank, i);
    memset(j->output, 0xff, j->total * sizeof(float));
    in_chunks(j, call, chunk);
    const float *result = o->output_elements ? j->output : j->input;
    size_t elements = o->output_elements ? o->output_elements : o->input_elements;
    for (size_t i = 0; i < elements; i++)
        if (result[i] != expected(o, j, i, layout))
            fail("wrong result", way);
    memset(j->input, 0, j->total * sizeof(float));
}

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Linear between neighbours, as `ronde bench` computes it. */
static double percentile(const double *sorted, size_t count, double fraction) {
    double position = fraction * (double)(count - 1);
    size_t below = (size_t)position;
    size_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (position - (double)below) * (sorted[above] - sorted[below]);
}

static void measure(const struct job *j, const char *way, void (*call)(const struct job *, size_t, size_t), size_t chunk,
                    int steps, const char *separator) {
    double *ms = malloc((size_t)steps * sizeof(double));
    if (!ms)
        fail("out of memory", way);
    for (int i = -WARMUP_STEPS; i < steps; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        in_chunks(j, call, chunk);
        if (i >= 0)
            ms[i] = (MPI_Wtime() - start) * 1e3;
    }
    MPI_Allreduce(MPI_IN_PLACE, ms, steps, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(ms, (size_t)steps, sizeof(double), ascending);
    if (rank == 0)
        printf("%s\n    \"%s\": {\"p10\": %.6f, \"p50\": %.6f, \"p90\": %.6f}", separator, way,
               percentile(ms, (size_t)steps, 0.1), percentile(ms, (size_t)steps, 0.5), percentile(ms, (size_t)steps, 0.9));
    free(ms);
}

static void all_ways(const struct operation *o, const struct job *j, int steps) {
    static const int chunks_kib[] = {256, 512, 1024, 2048};
    check(o, j, o->name, o->call, j->total, j->total);
    measure(j, "whole", o->call, j->total, steps, "");
    for (size_t i = 0; i < sizeof chunks_kib / sizeof chunks_kib[0]; i++) {
        size_t chunk = (size_t)(chunks_kib[i] * KIB_ELEMENTS / size * size);
        char way[40];
        snprintf(way, sizeof way, "chunked_%d_kib", chunks_kib[i]);
        check(o, j, way, o->call, chunk, chunk);
        measure(j, way, o->call, chunk, steps, ",");
        if (!o->call_v)
            continue;
        snprintf(way, sizeof way, "chunked_v_%d_kib", chunks_kib[i]);
        check(o, j, way, o->call_v, chunk, j->total);
        measure(j, way, o->call_v, chunk, steps, ",");
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long bytes = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
    long steps = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (steps < 1 || steps > STEPS_MAX || size > RANKS_MAX)
        fail("usage", "mpi_operations BYTES STEPS, with 1 to 100000 steps, on at most 256 ranks");
    struct job j = {.total = (size_t)bytes / sizeof(float)};
    if (bytes < 1 || bytes > 4 * 2147483647L || j.total * sizeof(float) != (size_t)bytes || j.total % size != 0)
        fail("bytes must be below 8 GiB and as many float32 for each rank", argv[1]); /* MPI counts are int */
    j.share = j.total / size;
    size_t allocated = (j.total * sizeof(float) + 63) / 64 * 64;
    j.input = aligned_alloc(64, allocated);
    j.output = aligned_alloc(64, allocated);
    if (!j.input || !j.output)
        fail("out of memory", argv[1]);

    const struct operation operations[] = {
        {"allgather", allgather, allgather_v, 1, j.share, j.total},
        {"broadcast", broadcast, NULL, 0, j.total, 0},
        {"reducescatter", reducescatter, NULL, 0, j.total, j.share},
        {"alltoall", alltoall, alltoall_v, 1, j.total, j.total},
        {"allreduce", allreduce, NULL, 0, j.total, 0},
    };
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",")] = '\0';
    if (rank == 0)
        printf("{\"peer\": \"%s\", \"np\": %d, \"bytes\": %ld, \"steps\": %ld, \"step_ms\": {", version, size, bytes, steps);
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        if (rank == 0)
            printf("%s\n  \"%s\": {", i == 0 ? "" : ",", operations[i].name);
        all_ways(&operations[i], &j, (int)steps);
        if (rank == 0)
            printf("}");
    }
    if (rank == 0)
        printf("\n}}\n");
    free(j.input);
    free(j.output);
    MPI_Finalize();
    return 0;
}
