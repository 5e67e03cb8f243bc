/* The types and numbers of CUDA's driver API that the fake driver knows, and what it offers to the fake NCCL. */
#ifndef FAKE_CUDA_API_H
#define FAKE_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;

/* X(name, number, text) */
#define FAKE_CUDA_RESULTS(X)                                                                     \
    X(CUDA_SUCCESS, 0, "no error")                                                               \
    X(CUDA_ERROR_INVALID_VALUE, 1, "invalid argument")                                           \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2, "out of memory")                                              \
    X(CUDA_ERROR_NOT_INITIALIZED, 3, "initialization error")                                     \
    X(CUDA_ERROR_DEINITIALIZED, 4, "driver shutting down")                                       \
    X(CUDA_ERROR_STUB_LIBRARY, 34, "stub library")                                               \
    X(CUDA_ERROR_NO_DEVICE, 100, "no CUDA-capable device is detected")                           \
    X(CUDA_ERROR_INVALID_DEVICE, 101, "invalid device ordinal")                                  \
    X(CUDA_ERROR_INVALID_IMAGE, 200, "device kernel image is invalid")                           \
    X(CUDA_ERROR_INVALID_CONTEXT, 201, "invalid device context")                                 \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209, "no kernel image for the device")                       \
    X(CUDA_ERROR_INVALID_PTX, 218, "a PTX compilation failed")                                   \
    X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222, "PTX of a version that this driver does not know") \
    X(CUDA_ERROR_OPERATING_SYSTEM, 304, "OS call failed")                                        \
    X(CUDA_ERROR_INVALID_HANDLE, 400, "invalid resource handle")                                 \
    X(CUDA_ERROR_NOT_FOUND, 500, "named symbol not found")                                       \
    X(CUDA_ERROR_NOT_READY, 600, "device not ready")                                             \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "an illegal memory access was encountered")               \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709, "context is destroyed")                              \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, 716, "misaligned address")                                  \
    X(CUDA_ERROR_LAUNCH_FAILED, 719, "unspecified launch failure")                               \
    X(CUDA_ERROR_NOT_SUPPORTED, 801, "operation not supported")                                  \
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803, "driver and library versions do not match")        \
    X(CUDA_ERROR_UNKNOWN, 999, "unknown error")

enum {
#define X(name, number, text) name = number,
    FAKE_CUDA_RESULTS(X)
#undef X
};

enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_EVENT_DISABLE_TIMING = 2, CU_EVENT_FLAGS_ALL = 7 };
enum { CU_STREAM_LEGACY = 1, CU_STREAM_PER_THREAD = 2 };

EXPORT CUresult cuInit(unsigned int flags);
EXPORT CUresult cuDriverGetVersion(int *version);
EXPORT CUresult cuGetErrorName(CUresult error, const char **name);
EXPORT CUresult cuGetErrorString(CUresult error, const char **text);
EXPORT CUresult cuDeviceGetCount(int *count);
EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal);
EXPORT CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device);
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice device);
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext handle);
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *handle);
EXPORT CUresult cuCtxSetCurrent(CUcontext handle);
EXPORT CUresult cuCtxGetCurrent(CUcontext *handle);
EXPORT CUresult cuCtxGetDevice(CUdevice *device);
EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest);
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
EXPORT CUresult cuMemFree_v2(CUdeviceptr address);
EXPORT CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned int flags);
EXPORT CUresult cuMemFreeHost(void *address);
EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream handle);
EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle);
EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream);
EXPORT CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned int flags, int priority);
EXPORT CUresult cuStreamCreate(CUstream *handle, unsigned int flags);
EXPORT CUresult cuStreamDestroy_v2(CUstream handle);
EXPORT CUresult cuStreamSynchronize(CUstream handle);
EXPORT CUresult cuStreamQuery(CUstream handle);
EXPORT CUresult cuStreamIsCapturing(CUstream handle, int *status);
EXPORT CUresult cuEventCreate(CUevent *handle, unsigned int flags);
EXPORT CUresult cuEventDestroy_v2(CUevent handle);
EXPORT CUresult cuEventRecord(CUevent handle, CUstream stream_handle);
EXPORT CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags);
EXPORT CUresult cuEventQuery(CUevent handle);
EXPORT CUresult cuEventSynchronize(CUevent handle);
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent start_handle, CUevent end_handle);
EXPORT CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end);
EXPORT CUresult cuModuleLoadData(CUmodule *handle, const void *image);
EXPORT CUresult cuModuleGetFunction(CUfunction *handle, CUmodule module_handle, const char *name);
EXPORT CUresult cuModuleUnload(CUmodule handle);
EXPORT CUresult cuLaunchKernel(CUfunction handle, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                               unsigned int block_x, unsigned int block_y, unsigned int block_z,
                               unsigned int shared_bytes, CUstream stream_handle, void **parameters, void **extra);

/* Puts work of one's own on a stream. `line` is what the log says when it runs. `run` is called once, on the stream's
 * thread, in its turn; if `broken`, the context has failed, and all that is left to do is to free
 * `argument`, without any call of the driver. */
typedef CUresult fake_cuda_enqueue_call(CUstream stream, const char *line, void (*run)(void *argument, int broken),
                                        void *argument);
EXPORT fake_cuda_enqueue_call fake_cuda_enqueue;

/* Inside an operation: where these bytes of the device lie on the host, held until the operation ends. If they are not
 * in a live allocation of this device the context fails, and the answer is null. */
typedef void *fake_cuda_touch_call(CUdeviceptr address, size_t bytes, const char *who);
EXPORT fake_cuda_touch_call fake_cuda_touch;

/* Inside an operation: whether the context has failed, so that an operation that waits should give up. */
typedef int fake_cuda_broken_call(void);
EXPORT fake_cuda_broken_call fake_cuda_broken;

/* A line in the log; inside an operation with its stream. */
typedef void fake_cuda_log_call(const char *line);
EXPORT fake_cuda_log_call fake_cuda_log;

#endif
