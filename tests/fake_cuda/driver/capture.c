/* Capture of a stream into a graph: no more than the flag. What is put on a capturing stream is dropped. */
#include "driver.h"

static CUresult find(CUstream handle, struct stream **stream)
{
    struct context *context;
    CUresult result = enter(&context);
    if (result)
        return result;
    result = stream_find(context, handle, stream);
    return result ? leave(result) : CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, int *status)
{
    struct stream *stream;
    CUresult result = find(handle, &stream);
    if (result)
        return result;
    *status = stream->capturing;
    return leave(CUDA_SUCCESS);
}

CUresult cuStreamBeginCapture_v2(CUstream handle, int mode)
{
    (void)mode;
    struct stream *stream;
    CUresult result = find(handle, &stream);
    if (result)
        return result;
    /* The legacy stream cannot be captured, and none twice. */
    if (stream->number == 0 || stream->capturing)
        return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    stream->capturing = true;
    return leave(CUDA_SUCCESS);
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    struct stream *stream;
    CUresult result = find(handle, &stream);
    if (result)
        return result;
    if (!stream->capturing)
        return leave(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    stream->capturing = false;
    static char empty;
    *graph = handle_new(GRAPH, &empty);
    return leave(CUDA_SUCCESS);
}

CUresult cuGraphDestroy(CUgraph graph)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    if (!handle_object(GRAPH, graph))
        return leave(CUDA_ERROR_INVALID_HANDLE);
    handle_drop(graph);
    return leave(CUDA_SUCCESS);
}
