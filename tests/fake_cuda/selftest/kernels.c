/* Modules and launches: Ronde's kernels on the CPU. */
#include "check.h"
#include "table.h"

static const char PTX[] = ".version 7.0\n.target sm_60\n.address_size 64\n"
                          ".visible .entry ronde_copy(\n)\n.visible .entry ronde_f32_bf16(\n)\n"
                          ".visible .entry ronde_fill(\n)\n.visible .entry ronde_unheard_of(\n)\n";

static CUfunction function(const char *name)
{
    CUmodule module;
    CUfunction function;
    OK(cuModuleLoadData(&module, PTX));
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

static CUresult launch(CUfunction function, const struct ronde_table *table, unsigned blocks, CUstream stream)
{
    struct ronde_table copy = *table;
    void *parameters[] = {&copy};
    CUresult result = cuLaunchKernel(function, blocks, 1, 1, RONDE_THREADS, 1, 1, 0, stream, parameters, NULL);
    memset(&copy, 0, sizeof copy); /* the launch has its own */
    return result;
}

static void modules_have_names(void)
{
    start();
    CUmodule module;
    CUfunction found;
    EXPECT(cuModuleLoadData(&module, "nothing"), CUDA_ERROR_INVALID_PTX);
    EXPECT(cuModuleLoadData(&module, ".version 8.8 .target sm_90 .visible .entry x()"), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    OK(cuModuleLoadData(&module, PTX));
    OK(cuModuleGetFunction(&found, module, "ronde_copy"));
    EXPECT(cuModuleGetFunction(&found, module, "ronde_cop"), CUDA_ERROR_NOT_FOUND);
    OK(cuModuleUnload(module));
    EXPECT(cuModuleGetFunction(&found, module, "ronde_copy"), CUDA_ERROR_INVALID_HANDLE);
}

static void kernels_run(void)
{
    start();
    CUstream stream = stream_new();
    enum { LONG = 40000, SHORT = 77 };
    static float source[LONG];
    static unsigned short target[LONG];
    for (int i = 0; i < LONG; ++i)
        source[i] = (float)i;
    CUdeviceptr from = memory_of(source, sizeof source), to = memory_new(sizeof target), small = memory_new(2 * SHORT);
    struct ronde_table table = {.factor = 0.5, .divisor = 1, .count = 2};
    table.from[0] = from, table.to[0] = to, table.elements[0] = LONG;
    table.from[1] = from + 4, table.to[1] = small, table.elements[1] = SHORT, table.first_block[1] = 5;
    OK(launch(function("ronde_f32_bf16"), &table, 6, stream));
    OK(cuStreamSynchronize(stream));
    read_back(target, to, sizeof target);
    EXPECT(target[256], 0x4300); /* 128 */
    read_back(target, small, 2 * SHORT);
    EXPECT(target[63], 0x4200); /* 32 */

    struct ronde_table fill = {.factor = 1, .divisor = 1, .count = 1};
    fill.from[0] = 0x1122334455667788, fill.to[0] = to, fill.elements[0] = 16;
    OK(launch(function("ronde_fill"), &fill, 1, stream));
    OK(cuStreamSynchronize(stream));
    read_back(target, to, 16);
    EXPECT(target[7], 0x1122);
    EXPECT(launch(function("ronde_unheard_of"), &fill, 1, stream), CUDA_ERROR_NOT_SUPPORTED);
}

static struct ronde_table one_copy(CUdeviceptr from, CUdeviceptr to, unsigned bytes)
{
    struct ronde_table table = {.factor = 1, .divisor = 1, .count = 1};
    table.from[0] = from, table.to[0] = to, table.elements[0] = bytes;
    return table;
}

static void a_kernel_beyond_the_end(void)
{
    start();
    CUstream stream = stream_new();
    struct ronde_table table = one_copy(memory_new(99), memory_new(100), 100);
    OK(launch(function("ronde_copy"), &table, 1, stream));
    EXPECT(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void a_kernel_with_too_few_blocks(void)
{
    start();
    CUstream stream = stream_new();
    struct ronde_table table = one_copy(memory_new(40000), memory_new(40000), 40000);
    OK(launch(function("ronde_copy"), &table, 2, stream));
    OK(cuStreamSynchronize(stream));
    OK(launch(function("ronde_copy"), &table, 1, stream));
    EXPECT(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
}

static void a_kernel_whose_targets_overlap(void)
{
    start();
    CUstream stream = stream_new();
    CUdeviceptr memory = memory_new(400);
    struct ronde_table table = one_copy(memory, memory + 99, 100);
    OK(launch(function("ronde_copy"), &table, 1, stream));
    EXPECT(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
}

static void a_kernel_at_an_odd_address(void)
{
    start();
    CUstream stream = stream_new();
    struct ronde_table table = one_copy(memory_new(400) + 2, memory_new(400), 10);
    OK(launch(function("ronde_f32_bf16"), &table, 1, stream));
    EXPECT(cuStreamSynchronize(stream), CUDA_ERROR_MISALIGNED_ADDRESS);
}

const struct test kernel_tests[] = {
    {"modules_have_names", modules_have_names},
    {"kernels_run", kernels_run},
    {"a_kernel_beyond_the_end", a_kernel_beyond_the_end},
    {"a_kernel_with_too_few_blocks", a_kernel_with_too_few_blocks},
    {"a_kernel_whose_targets_overlap", a_kernel_whose_targets_overlap},
    {"a_kernel_at_an_odd_address", a_kernel_at_an_odd_address},
    {NULL, NULL},
};
