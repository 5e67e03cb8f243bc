"""Tensors on a GPU, passed directly to the extension module.

Without a GPU, libcuda and libnccl are those of tests/fake_cuda, and a stand-in class has the tensor
attributes that the extension reads; with TEST_RONDE_GPU=real, tensors are torch's, on device 0.
"""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
IS_REAL = os.environ.get("TEST_RONDE_GPU") == "real"

STAND_IN = """
    import ctypes
    import torch
    import torch.utils.dlpack

    cuda = ctypes.CDLL("libcuda.so.1")
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

    class Taken:
        \"\"\"What a capsule is of; a torch without CUDA would not take it.\"\"\"

        def __init__(self, capsule):
            at = get_pointer(capsule, b"dltensor")
            self.capsule = capsule
            self.address = ctypes.c_uint64.from_address(at)
            kind, ordinal = (ctypes.c_int * 2).from_address(at + 8)
            assert kind == 2  # kDLCUDA
            self.device = torch.device("cuda", ordinal)
            self.shape = list((ctypes.c_int64 * 1).from_address(ctypes.c_uint64.from_address(at + 24).value))

        def tolist(self):
            return download(self.address, self.shape[0])

    # Before the extension is told of them.
    torch.utils.dlpack.from_dlpack = Taken
    torch._C._cuda_getCurrentRawStream = lambda device: 0

    import ronde._ronde as extension
    import ronde.torch as hvd

    def check(result):
        assert result == 0, result

    class Tensor:
        \"\"\"Of a torch tensor on a GPU what the extension looks at.\"\"\"

        is_cpu, is_cuda, device = False, True, torch.device("cuda", 0)

        def __init__(self, elements):
            self.dtype, self.shape = torch.float32, torch.Size([len(elements)])
            self.address = ctypes.c_uint64()
            host = (ctypes.c_float * len(elements))(*elements)
            check(cuda.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(4 * len(elements))))
            check(cuda.cuMemcpyHtoD_v2(self.address, host, ctypes.c_size_t(4 * len(elements))))

        def get_device(self):
            return 0

        def data_ptr(self):
            return self.address.value

        def is_contiguous(self):
            return True

        def is_neg(self):
            return False

        def tolist(self):
            return download(self.address, self.shape[0])

    def download(address, elements):
        host = (ctypes.c_float * elements)()
        check(cuda.cuMemcpyDtoH_v2(host, address, ctypes.c_size_t(4 * elements)))
        return list(host)

    context, device = ctypes.c_void_p(), ctypes.c_int()
    check(cuda.cuInit(0))
    check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))
"""

REAL = """
    import torch
    import ronde._ronde as extension
    import ronde.torch as hvd

    def Tensor(elements):
        return torch.tensor(elements, device="cuda:0")
"""


def run(body, **environment):
    """Runs ``body`` in a process with a GPU, real or fake; returns its output."""
    if not IS_REAL:
        folder = os.environ.get("TEST_RONDE_FAKE_CUDA", str(ROOT / "target/tmp/fake_cuda"))
        built = subprocess.run([str(ROOT / "tests/fake_cuda/build"), folder], capture_output=True, text=True)
        if built.returncode != 0:
            pytest.fail(f"the fake libraries do not compile: {built.stderr}")
        environment = {"LD_LIBRARY_PATH": folder, **environment}
    program = textwrap.dedent(REAL if IS_REAL else STAND_IN) + textwrap.dedent(body)
    environment = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_reduced_in_place_and_to_another_tensor():
    run(
        """
        hvd.init()
        assert hvd.nccl_built() >= 21400 and hvd.cuda_built()
        tensor, output = Tensor([1.0, 2.0, 3.0]), Tensor([0.0, 0.0, 0.0])
        handle = extension.allreduce(tensor, output, "there", hvd.Sum, 1.0, 0.5, 0)
        assert extension.synchronize(handle) is output
        assert output.tolist() == [0.5, 1.0, 1.5] and tensor.tolist() == [1.0, 2.0, 3.0]
        handle = extension.allreduce(tensor, tensor, "in place", hvd.Average, 2.0, 1.0, 0)
        assert extension.synchronize(handle) is tensor and tensor.tolist() == [2.0, 4.0, 6.0]
        handle = extension.broadcast(tensor, output, 0, "broadcast", 0)
        assert extension.synchronize(handle).tolist() == [2.0, 4.0, 6.0]
        hvd.shutdown()
        """
    )


def test_what_is_allocated_is_a_tensor_on_the_gpu():
    run(
        """
        hvd.init()
        for step in range(3):
            gathered = extension.synchronize(extension.allgather(Tensor([1.0, 2.0, 3.0, 4.0]), "gathered", 0))
            assert gathered.device == torch.device("cuda", 0) and gathered.tolist() == [1.0, 2.0, 3.0, 4.0]
            del gathered
        hvd.shutdown()
        """
    )


def test_with_async_completion_the_callers_stream_waits_and_the_host_does_not():
    run(
        """
        import time
        hvd.init()
        tensor = Tensor([1.0, 2.0, 3.0])
        for step in range(5):
            handle = extension.allreduce(tensor, tensor, "in place", hvd.Sum, 2.0, 1.0, 0)
            assert extension.synchronize(handle) is tensor
        assert tensor.tolist() == [32.0, 64.0, 96.0]
        began = time.perf_counter()
        handle = extension.allreduce(tensor, tensor, "ahead", hvd.Sum, 1.0, 1.0, 0)
        assert extension.synchronize(handle) is tensor
        ahead = time.perf_counter() - began
        assert tensor.tolist() == [32.0, 64.0, 96.0]
        took = time.perf_counter() - began
        # A real device is too fast to tell.
        assert isinstance(tensor, torch.Tensor) or ahead < took / 2, (ahead, took)
        gathered = extension.synchronize(extension.allgather(tensor, "gathered", 0))
        assert gathered.tolist() == [32.0, 64.0, 96.0]
        hvd.shutdown()
        """,
        HOROVOD_ENABLE_ASYNC_COMPLETION="1",
        FAKE_CUDA_DELAY_US="1000000",
    )


def test_what_the_gpu_refuses_is_the_callers_fault_and_names_the_tensor():
    if IS_REAL:
        pytest.skip("this GPU is there")
    said = run(
        """
        hvd.init()
        Tensor.get_device = lambda self: 7
        try:
            extension.allreduce(Tensor([1.0]), Tensor([1.0]), "far", hvd.Sum, 1.0, 1.0, 0)
        except ValueError as error:
            print(error, error.tensor, error.rank)
        """
    )
    assert "tensor allreduce.far on rank 0: there is no CUDA device 7" in said and said.endswith("allreduce.far 0\n")


def test_what_cannot_be_is_refused():
    run(
        """
        hvd.init()
        host = torch.ones(3)
        for wrong in (lambda: extension.allreduce(Tensor([1.0] * 3), host, "mixed", hvd.Sum, 1.0, 1.0, 0),
                      lambda: extension.allreduce(Tensor([1.0]), Tensor([1.0]), "adasum", hvd.Adasum, 1.0, 1.0, 0)):
            try:
                wrong()
            except ValueError as error:
                print(error)
            else:
                raise AssertionError("not refused")
        hvd.shutdown()
        """
    )
