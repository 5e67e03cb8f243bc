/* Benchmark of plain MPI_Allreduce on a model's gradients: MPI without a runtime above it.
 *
 *   mpirun -np 2 mpi_allreduce ELEMENTS STEPS [WAY] > out.json
 *
 * ELEMENTS has one float32 element count per line (`ronde bench --model NAME --print-elements`). All tensors are
 * contiguous in a flat buffer. Rank 0 prints one JSON object with a row per way of reducing it, or for WAY alone:
 *
 *   flat_in_place, flat_two_buffers           one MPI_Allreduce over everything
 *   chunked_1_mib, chunked_1_mib_two_buffers  a loop of MPI_Allreduce over chunks of 1 MiB
 *   chunked_256_kib                           the same over smaller chunks, where Open MPI takes another algorithm
 *   packed                                    tensors copied into a fusion buffer, one MPI_Allreduce, copied back
 *   latency_4_bytes                           one float32
 *
 * In place except where two buffers are named.
 *
 * The environment's MPI_ALLREDUCE_WARMUP replaces the number of steps that do not count. `cores`: CPU time of all ranks, divided
 * by the time of the steps.
 *
 * A step's time is that of its slowest rank. The ranks sum and do not divide, which is a little less work than an average.
 */
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MIB_ELEMENTS = 1 << 18, /* 1 MiB of float32 */
    WARMUP_STEPS = 5,
    TENSORS_MAX = 100000,
    STEPS_MAX = 100000,
    LATENCY_FACTOR = 50, /* a 4-byte step is short, so take more of them */
};

struct payload {
    size_t tensors, total;
    size_t elements[TENSORS_MAX];
    float *gradients; /* total elements, all tensors contiguous */
    float *second;    /* equally long: the result of ways with two buffers, the fusion buffer of `packed` */
};

static int rank, size, warmup = WARMUP_STEPS;

static void fail(const char *what, const char *argument) {
    fprintf(stderr, "mpi_allreduce: %s: %s\n", what, argument);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static void allreduce(const void *input, float *output, size_t count) {
    MPI_Allreduce(input, output, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void flat_in_place(struct payload *p) { allreduce(MPI_IN_PLACE, p->gradients, p->total); }

static void flat_two_buffers(struct payload *p) { allreduce(p->gradients, p->second, p->total); }

static void in_chunks(struct payload *p, size_t chunk, const float *input, float *output) {
    for (size_t start = 0; start < p->total; start += chunk) {
        size_t count = p->total - start < chunk ? p->total - start : chunk;
        allreduce(input ? (const void *)(input + start) : MPI_IN_PLACE, output + start, count);
    }
}

static void chunked_1_mib(struct payload *p) { in_chunks(p, MIB_ELEMENTS, NULL, p->gradients); }

static void chunked_1_mib_two_buffers(struct payload *p) { in_chunks(p, MIB_ELEMENTS, p->gradients, p->second); }

static void chunked_256_kib(struct payload *p) { in_chunks(p, MIB_ELEMENTS / 4, NULL, p->gradients); }

static void packed(struct payload *p) {
    size_t start = 0;
    for (size_t i = 0; i < p->tensors; start += p->elements[i++])
        memcpy(p->second + start, p->gradients + start, p->elements[i] * sizeof(float));
    allreduce(MPI_IN_PLACE, p->second, p->total);
    start = 0;
    for (size_t i = 0; i < p->tensors; start += p->elements[i++])
        memcpy(p->gradients + start, p->second + start, p->elements[i] * sizeof(float));
}

static void latency_4_bytes(struct payload *p) { allreduce(MPI_IN_PLACE, p->gradients, 1); }

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

/* Every rank contributes rank + 1; afterwards the buffers hold zeros, so that repeated sums stay finite. */
static void check(const char *name, void (*step)(struct payload *), struct payload *p, const float *result, size_t count) {
    for (size_t i = 0; i < p->total; i++)
        p->gradients[i] = (float)(rank + 1);
    step(p);
    float expected = (float)(size * (size + 1)) / 2;
    for (size_t i = 0; i < count; i++)
        if (result[i] != expected)
            fail("wrong sum", name);
    memset(p->gradients, 0, p->total * sizeof(float));
    memset(p->second, 0, p->total * sizeof(float));
}

/* CPU time of this process. */
static double cpu_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

static void measure(const char *name, void (*step)(struct payload *), struct payload *p, int steps, const char *separator) {
    double *ms = malloc((size_t)steps * sizeof(double));
    if (!ms)
        fail("out of memory", name);
    double cores = 0, began = 0;
    for (int i = -warmup; i < steps; i++) {
        if (i == 0) {
            cores = -cpu_seconds();
            began = MPI_Wtime();
        }
        double start = MPI_Wtime();
        step(p);
        if (i >= 0)
            ms[i] = (MPI_Wtime() - start) * 1e3;
    }
    cores = (cores + cpu_seconds()) / (MPI_Wtime() - began);
    MPI_Allreduce(MPI_IN_PLACE, &cores, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, ms, steps, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(ms, (size_t)steps, sizeof(double), ascending);
    if (rank == 0)
        printf("%s\n  \"%s\": {\"p10\": %.6f, \"p50\": %.6f, \"p90\": %.6f, \"steps\": %d, \"cores\": %.3f}", separator, name,
               percentile(ms, (size_t)steps, 0.1), percentile(ms, (size_t)steps, 0.5), percentile(ms, (size_t)steps, 0.9),
               steps, cores);
    free(ms);
}

static void read_elements(const char *path, struct payload *p) {
    FILE *file = fopen(path, "r");
    if (!file)
        fail(strerror(errno), path);
    unsigned long long count;
    int found;
    while ((found = fscanf(file, "%llu", &count)) == 1) {
        if (count == 0 || count > 1ull << 31 || p->tensors == TENSORS_MAX)
            fail("bad element count, or too many", path);
        p->elements[p->tensors++] = count;
        p->total += count;
    }
    if (found != EOF || p->tensors == 0 || p->total > 2147483647ull) /* MPI counts are int */
        fail("not a list of element counts, empty, or above 2^31 - 1 in all", path);
    fclose(file);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long steps = argc == 3 || argc == 4 ? strtol(argv[2], NULL, 10) : 0;
    if (steps < 1 || steps > STEPS_MAX)
        fail("usage", "mpi_allreduce ELEMENTS STEPS [WAY], with 1 to 100000 steps");
    if (getenv("MPI_ALLREDUCE_WARMUP"))
        warmup = atoi(getenv("MPI_ALLREDUCE_WARMUP"));
    static struct payload p;
    read_elements(argv[1], &p);
    p.gradients = aligned_alloc(64, (p.total * sizeof(float) + 63) / 64 * 64);
    p.second = aligned_alloc(64, (p.total * sizeof(float) + 63) / 64 * 64);
    if (!p.gradients || !p.second)
        fail("out of memory", argv[1]);

    struct {
        const char *name;
        void (*step)(struct payload *);
        const float *result;
        size_t count;
    } ways[] = {
        {"flat_in_place", flat_in_place, p.gradients, p.total},
        {"flat_two_buffers", flat_two_buffers, p.second, p.total},
        {"chunked_1_mib", chunked_1_mib, p.gradients, p.total},
        {"chunked_1_mib_two_buffers", chunked_1_mib_two_buffers, p.second, p.total},
        {"chunked_256_kib", chunked_256_kib, p.gradients, p.total},
        {"packed", packed, p.gradients, p.total},
        {"latency_4_bytes", latency_4_bytes, p.gradients, 1},
    };
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",")] = '\0';
    if (rank == 0)
        printf("{\"peer\": \"%s\", \"np\": %d, \"tensors\": %zu, \"bytes_per_step\": %zu, \"step_ms\": {", version, size,
               p.tensors, p.total * sizeof(float));
    size_t count = sizeof ways / sizeof ways[0], measured = 0;
    for (size_t i = 0; i < count; i++) {
        if (argc == 4 && strcmp(argv[3], ways[i].name) != 0)
            continue;
        check(ways[i].name, ways[i].step, &p, ways[i].result, ways[i].count);
        int factor = ways[i].count == 1 ? LATENCY_FACTOR : 1;
        measure(ways[i].name, ways[i].step, &p, (int)steps * factor, measured++ == 0 ? "" : ",");
    }
    if (measured == 0)
        fail("no such way", argv[3]);
    if (rank == 0)
        printf("\n}}\n");
    free(p.gradients);
    free(p.second);
    MPI_Finalize();
    return 0;
}
