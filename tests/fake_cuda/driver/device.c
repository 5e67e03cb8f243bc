/* Devices: what there is to know about them. */
#include <stdio.h>

#include "driver.h"

static CUresult device_check(CUdevice device)
{
    return device >= 0 && device < settings.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetCount(int *count)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    *count = settings.devices;
    return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    if ((result = device_check(ordinal)) == CUDA_SUCCESS)
        *device = ordinal;
    return leave(result);
}

/* Domain 0, bus = ordinal, device 0. */
CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    if ((result = device_check(device)) == CUDA_SUCCESS)
        snprintf(text, (size_t)length, "0000:%02X:00.0", device);
    return leave(result);
}
