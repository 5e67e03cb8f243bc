/* The driver: contexts, memory, streams, events, copies. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void contexts_are_needed(void)
{
    int count;
    CUcontext context, other;
    CUdevice device;
    CUdeviceptr address;
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    EXPECT(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    EXPECT(count, 2);
    EXPECT(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    EXPECT(cuMemAlloc_v2(&address, 8), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxGetCurrent(&context));
    CHECK(!context);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxSetCurrent(context));
    OK(cuCtxPushCurrent_v2(other));
    OK(cuCtxGetDevice(&device));
    EXPECT(device, 1);
    OK(cuCtxPopCurrent_v2(&other));
    OK(cuCtxGetDevice(&device));
    EXPECT(device, 0);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    EXPECT(cuMemAlloc_v2(&address, 8), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuCtxSetCurrent(NULL));
    EXPECT(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
}

static void the_driver_tells(void)
{
    int value;
    const char *text;
    start();
    OK(cuDriverGetVersion(&value));
    EXPECT(value, 12040);
    OK(cuGetErrorName(700, &text));
    CHECK(strcmp(text, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0);
    EXPECT(cuGetErrorString(12345, &text), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxGetStreamPriorityRange(NULL, &value));
    CHECK(value < 0);
}

static void initialization_fails_as_asked(void)
{
    setenv("FAKE_CUDA_INIT_ERROR", "803", 1);
    EXPECT(cuInit(0), 803);
    setenv("FAKE_CUDA_INIT_ERROR", "", 1);
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    EXPECT(cuInit(0), CUDA_ERROR_NO_DEVICE);
}

static void a_child_may_not_go_on(void)
{
    start();
    stream_new();
    pid_t child = fork();
    if (!child)
        _exit(cuCtxGetStreamPriorityRange(NULL, NULL));
    int status;
    waitpid(child, &status, 0);
    EXPECT(WEXITSTATUS(status), CUDA_ERROR_NOT_INITIALIZED);
}

static void memory_ends(void)
{
    setenv("FAKE_CUDA_MEMORY_BYTES", "1000000", 1);
    start();
    CUdeviceptr a = memory_new(600000), b;
    EXPECT(cuMemAlloc_v2(&b, 600000), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree_v2(a));
    b = memory_new(600000);
    CHECK(a != b);
    EXPECT(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemFree_v2(b + 8), CUDA_ERROR_INVALID_VALUE);
}

static void the_host_cannot_read_a_device(void)
{
    start();
    CUdeviceptr device = memory_new(100);
    pid_t child = fork();
    if (!child) {
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile char *)(uintptr_t)device);
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 0xff);
}

static void copies(void)
{
    start();
    CUstream stream = stream_new();
    unsigned char *host, back[1000];
    OK(cuMemHostAlloc((void **)&host, 1000, 0));
    for (int i = 0; i < 1000; ++i)
        host[i] = (unsigned char)(i * 7);
    CUdeviceptr a = memory_new(1000), b = memory_new(1000);
    OK(cuMemcpyHtoDAsync_v2(a, host, 1000, stream));
    OK(cuMemcpyDtoDAsync_v2(b, a, 1000, stream));
    OK(cuMemsetD8Async(b + 3, 1, 2, stream));
    OK(cuMemcpyDtoHAsync_v2(back, b, 1000, stream));
    host[3] = host[4] = 1;
    CHECK(memcmp(host, back, 1000) == 0);
}

static void new_memory_is_nan(void)
{
    start();
    float x;
    read_back(&x, memory_new(4), 4);
    CHECK(x != x);
}

static void streams_run_beside_the_caller(void)
{
    start();
    CUstream stream = stream_new();
    occupy(stream, 200);
    EXPECT(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(stream));
    OK(cuStreamQuery(stream));
    occupy(stream, 100);
    OK(cuStreamDestroy_v2(stream));
    EXPECT(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
}

static void events_order_streams(void)
{
    start();
    CUstream a = stream_new(), b = stream_new();
    CUevent event, never;
    int one = 1, two = 2, got;
    CUdeviceptr memory = memory_of(&one, 4), target = memory_new(4), source = memory_of(&two, 4);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&never, 0));
    OK(cuStreamWaitEvent(b, never, 0));
    OK(cuEventQuery(never));
    OK(cuEventSynchronize(never));
    occupy(a, 200);
    OK(cuMemcpyDtoDAsync_v2(memory, source, 4, a));
    OK(cuEventRecord(event, a));
    OK(cuStreamWaitEvent(b, event, 0));
    /* Recorded again, later; b waits for the first. */
    occupy(a, 500);
    OK(cuEventRecord(event, a));
    OK(cuMemcpyDtoDAsync_v2(target, memory, 4, b));
    EXPECT(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(b));
    EXPECT(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    OK(cuEventSynchronize(event));
    OK(cuEventQuery(event));
    read_back(&got, target, 4);
    EXPECT(got, 2);
    OK(cuEventDestroy_v2(event));
    EXPECT(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
}

static void events_take_the_time(void)
{
    start();
    CUstream stream = stream_new();
    CUevent first, second, untimed;
    float ms;
    OK(cuEventCreate(&first, 0));
    OK(cuEventCreate(&second, 0));
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    EXPECT(cuEventElapsedTime(&ms, first, second), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventRecord(first, stream));
    occupy(stream, 50);
    OK(cuEventRecord(second, stream));
    OK(cuEventRecord(untimed, stream));
    EXPECT(cuEventElapsedTime(&ms, first, second), CUDA_ERROR_NOT_READY);
    OK(cuEventSynchronize(untimed));
    EXPECT(cuEventElapsedTime(&ms, first, untimed), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventElapsedTime(&ms, first, second));
    CHECK(ms >= 50);
}

static void memory_in_the_order_of_streams(void)
{
    start();
    CUstream a = stream_new(), b = stream_new();
    CUdeviceptr memory;
    OK(cuMemAllocAsync(&memory, 64, a));
    OK(cuMemsetD8Async(memory, 1, 64, a));
    OK(cuMemFreeAsync(memory, a));
    EXPECT(cuMemFreeAsync(memory, a), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamSynchronize(a));
    occupy(a, 100);
    OK(cuMemAllocAsync(&memory, 64, a));
    OK(cuMemsetD8Async(memory, 1, 64, b)); /* too early */
    EXPECT(cuStreamSynchronize(b), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void use_after_free(void)
{
    start();
    CUstream stream = stream_new();
    CUevent event;
    CUdeviceptr memory = memory_new(64);
    OK(cuEventCreate(&event, 0));
    occupy(stream, 50);
    OK(cuMemsetD8Async(memory, 0, 64, stream));
    OK(cuEventRecord(event, stream));
    OK(cuMemFree_v2(memory));
    EXPECT(cuEventSynchronize(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    /* Nothing mends it. */
    EXPECT(cuMemAlloc_v2(&memory, 8), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static void use_beyond_the_end(void)
{
    start();
    CUstream stream = stream_new();
    CUdeviceptr memory = memory_new(64);
    OK(cuMemsetD8Async(memory + 32, 0, 32, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemsetD8Async(memory + 32, 0, 33, stream));
    EXPECT(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void *other_thread(void *argument)
{
    CUdeviceptr memory;
    EXPECT(cuMemAlloc_v2(&memory, 8), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxSetCurrent(argument));
    CUstream stream = stream_new();
    for (int i = 0; i < 200; ++i) {
        OK(cuMemAlloc_v2(&memory, 8));
        OK(cuMemsetD8Async(memory, 1, 8, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemFree_v2(memory));
    }
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static void threads(void)
{
    start();
    CUcontext context;
    OK(cuCtxGetCurrent(&context));
    pthread_t ids[4];
    for (int i = 0; i < 4; ++i)
        CHECK(pthread_create(&ids[i], NULL, other_thread, context) == 0);
    for (int i = 0; i < 4; ++i)
        pthread_join(ids[i], NULL);
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static void the_log_has_the_order(void)
{
    char path[] = "/tmp/fake-cuda-log-XXXXXX", text[2000] = "", line[64];
    int file = mkstemp(path);
    CHECK(file >= 0);
    setenv("FAKE_CUDA_LOG", path, 1);
    setenv("FAKE_CUDA_DELAY_US", "2000", 1);
    start();
    CUstream a = stream_new(), b = stream_new();
    CUevent event;
    CUdeviceptr memory = memory_new(64);
    OK(cuEventCreate(&event, 0));
    OK(cuMemsetD8Async(memory, 0, 64, a));
    OK(cuEventRecord(event, a));
    OK(cuStreamWaitEvent(b, event, 0));
    OK(cuMemsetD8Async(memory, 0, 32, b));
    OK(cuStreamSynchronize(b));
    CHECK(read(file, text, sizeof text - 1) > 0);
    unlink(path);
    const char *at = text;
    const char *const wanted[] = {"s1 memset bytes=64", "s1 event_record e1", "s2 event_wait e1", "s2 memset bytes=32"};
    for (int i = 0; i < 4; ++i) {
        snprintf(line, sizeof line, "%d %s\n", (int)getpid(), wanted[i]);
        at = strstr(at, line);
        CHECK(at);
    }
}

const struct test driver_tests[] = {
    {"contexts_are_needed", contexts_are_needed},
    {"the_driver_tells", the_driver_tells},
    {"initialization_fails_as_asked", initialization_fails_as_asked},
    {"a_child_may_not_go_on", a_child_may_not_go_on},
    {"memory_ends", memory_ends},
    {"the_host_cannot_read_a_device", the_host_cannot_read_a_device},
    {"copies", copies},
    {"new_memory_is_nan", new_memory_is_nan},
    {"streams_run_beside_the_caller", streams_run_beside_the_caller},
    {"events_order_streams", events_order_streams},
    {"events_take_the_time", events_take_the_time},
    {"memory_in_the_order_of_streams", memory_in_the_order_of_streams},
    {"use_after_free", use_after_free},
    {"use_beyond_the_end", use_beyond_the_end},
    {"threads", threads},
    {"the_log_has_the_order", the_log_has_the_order},
    {NULL, NULL},
};
