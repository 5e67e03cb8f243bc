/* Devices: what there is to know about them. */
#include <stdio.h>
#include <string.h>

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

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    if ((result = device_check(device)) == CUDA_SUCCESS)
        snprintf(name, (size_t)length, "Ronde Fake GPU %d", device);
    return leave(result);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    if ((result = device_check(device)) == CUDA_SUCCESS)
        *bytes = settings.memory_bytes;
    return leave(result);
}

/* The same in all processes, as that of a real device. */
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    if ((result = device_check(device)) == CUDA_SUCCESS) {
        memcpy(uuid->bytes, "ronde-fake-gpu-", 15);
        uuid->bytes[15] = (char)device;
    }
    return leave(result);
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
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

/* The more common attributes, as of an A100; 0 for the rest. */
static int attribute(int number, CUdevice device)
{
    switch (number) {
    case 1: return 1024;        /* threads per block */
    case 2: return 1024;        /* block x */
    case 3: return 1024;        /* block y */
    case 4: return 64;          /* block z */
    case 5: return 2147483647;  /* grid x */
    case 6: return 65535;       /* grid y */
    case 7: return 65535;       /* grid z */
    case 8: return 49152;       /* shared memory per block */
    case 9: return 65536;       /* constant memory */
    case 10: return 32;         /* warp */
    case 11: return 2147483647; /* pitch */
    case 12: return 65536;      /* registers per block */
    case 13: return 1410000;    /* clock, kHz */
    case 14: return 512;        /* texture alignment */
    case 15: return 1;          /* copies overlap kernels */
    case 16: return 108;        /* multiprocessors */
    case 19: return 1;          /* maps host memory */
    case 31: return 1;          /* concurrent kernels */
    case 33: return device;     /* PCI bus */
    case 36: return 1215000;    /* memory clock, kHz */
    case 37: return 5120;       /* memory bus, bits */
    case 38: return 41943040;   /* L2 cache */
    case 39: return 2048;       /* threads per multiprocessor */
    case 40: return 3;          /* copy engines */
    case 41: return 1;          /* unified addressing */
    case 75: return 8;          /* compute capability */
    case 76: return 0;
    case 78: return 1;      /* stream priorities */
    case 81: return 167936; /* shared memory per multiprocessor */
    case 82: return 65536;  /* registers per multiprocessor */
    case 95: return 1;      /* cooperative launch */
    case 106: return 32;    /* blocks per multiprocessor */
    case 115: return 1;     /* memory pools */
    default: return 0;
    }
}

CUresult cuDeviceGetAttribute(int *value, int number, CUdevice device)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    if ((result = device_check(device)) == CUDA_SUCCESS) {
        if (number < 1 || number > 200)
            result = CUDA_ERROR_INVALID_VALUE;
        else
            *value = attribute(number, device);
    }
    return leave(result);
}
