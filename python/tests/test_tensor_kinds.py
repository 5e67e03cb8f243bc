"""Tensors whose memory does not hold their values: each is resolved, or refused with the reason."""

import pytest
import torch

TRUTH = torch.tensor([2, 0, 255, 1], dtype=torch.uint8)


def negative(size):
    """Values -1, -2 … in memory that holds 1, 2 …"""
    tensor = torch._neg_view(torch.arange(1.0, size + 1))
    assert tensor.is_neg() and tensor.is_contiguous()
    return tensor


def truth():
    return TRUTH.clone().view(torch.bool)


def total(hvd, tensor):
    return tensor * sum(range(1, hvd.size() + 1))


def scaled(hvd, tensor):
    """``tensor`` times one more than the rank, with the negative bit."""
    return torch._neg_view((-tensor * (hvd.rank() + 1)).clone())


def test_sums_of_negative_views(hvd):
    expected = total(hvd, -torch.arange(1.0, 5))
    tensors = [scaled(hvd, -torch.arange(1.0, 5)) for _ in range(4)]
    assert all(tensor.is_neg() for tensor in tensors)
    assert torch.equal(hvd.allreduce(tensors[0], op=hvd.Sum), expected)
    assert torch.equal(hvd.synchronize(hvd.allreduce_async(tensors[0], op=hvd.Sum)), expected)
    for one in hvd.grouped_allreduce(tensors[:2], op=hvd.Sum):
        assert torch.equal(one, expected)
    for one in hvd.synchronize(hvd.grouped_allreduce_async(tensors[:2], op=hvd.Sum)):
        assert torch.equal(one, expected)
    # The tensors themselves are unchanged.
    for tensor in tensors:
        assert torch.equal(tensor, -torch.arange(1.0, 5) * (hvd.rank() + 1))


def test_sums_of_negative_views_in_place(hvd):
    expected = total(hvd, -torch.arange(1.0, 5))
    tensors = [scaled(hvd, -torch.arange(1.0, 5)) for _ in range(4)]
    memory = [tensor.data_ptr() for tensor in tensors]
    assert hvd.allreduce_(tensors[0], op=hvd.Sum) is tensors[0]
    assert hvd.synchronize(hvd.allreduce_async_(tensors[1], op=hvd.Sum)) is tensors[1]
    returned = hvd.grouped_allreduce_(tensors[2:], op=hvd.Sum)
    assert returned[0] is tensors[2] and returned[1] is tensors[3]
    for tensor, address in zip(tensors, memory):
        assert tensor.is_neg() and tensor.data_ptr() == address
        assert torch.equal(tensor, expected)


def test_negative_leaves_that_require_a_gradient(hvd):
    tensor = scaled(hvd, torch.ones(3)).requires_grad_()
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    assert torch.equal(tensor.detach(), total(hvd, torch.ones(3)))


def test_the_imaginary_part_of_a_conjugate(hvd):
    # The usual way to get a negative bit.
    value = torch.complex(torch.zeros(()), torch.tensor(float(hvd.rank() + 1)))
    imaginary = value.conj().imag
    assert imaginary.is_neg() and imaginary.is_contiguous()
    expected = total(hvd, torch.tensor(-1.0))
    assert torch.equal(hvd.allreduce(imaginary, op=hvd.Sum), expected)
    hvd.allreduce_(imaginary, op=hvd.Sum)
    assert torch.equal(imaginary, expected)
    assert torch.equal(value.imag, -expected)


def test_other_operations_on_negative_views(hvd):
    size, rank = hvd.size(), hvd.rank()
    rows = negative(size)
    everybody = torch.cat([-torch.arange(1.0, size + 1)] * size)
    assert torch.equal(hvd.allgather(rows), everybody)
    assert torch.equal(hvd.synchronize(hvd.allgather_async(rows)), everybody)
    for one in hvd.grouped_allgather([rows, rows]):
        assert torch.equal(one, everybody)
    assert torch.equal(hvd.alltoall(rows), torch.full((size,), -(rank + 1.0)))
    sent, splits = hvd.alltoall(rows, splits=[1] * size)
    assert torch.equal(sent, torch.full((size,), -(rank + 1.0))) and splits.tolist() == [1] * size
    own = torch.tensor([-(rank + 1.0) * size])
    assert torch.equal(hvd.reducescatter(rows, op=hvd.Sum), own)
    for one in hvd.grouped_reducescatter([rows, rows], op=hvd.Sum):
        assert torch.equal(one, own)
    root = size - 1
    tensor = scaled(hvd, torch.ones(2))
    assert torch.equal(hvd.broadcast(tensor, root), torch.full((2,), size * 1.0))
    assert torch.equal(
        hvd.synchronize(hvd.broadcast_async(tensor, root)), torch.full((2,), size * 1.0)
    )
    assert torch.equal(hvd.broadcast_(tensor, root), torch.full((2,), size * 1.0))
    assert torch.equal(tensor, torch.full((2,), size * 1.0)) and tensor.is_neg()


@pytest.mark.parametrize("op", ["Min", "Max", "Product", "Average"])
def test_reductions_of_negative_views(hvd, op):
    tensor = scaled(hvd, -torch.ones(2, dtype=torch.float64))
    plain = tensor.resolve_neg()
    assert not plain.is_neg()
    kind = getattr(hvd, op)
    assert torch.equal(hvd.allreduce(tensor, op=kind), hvd.allreduce(plain, op=kind))


def test_adasum_of_negative_views(hvd):
    if hvd.size() & (hvd.size() - 1):
        pytest.skip("wants a power of two ranks")
    tensor = scaled(hvd, torch.ones(3))
    expected = hvd.allreduce(tensor.resolve_neg(), op=hvd.Adasum)
    assert torch.equal(hvd.allreduce(tensor, op=hvd.Adasum), expected)
    assert hvd.allreduce_(tensor, op=hvd.Adasum) is tensor
    assert torch.equal(tensor, expected)


@pytest.mark.parametrize("compression", ["none", "fp16"])
def test_negative_gradients(hvd, compression):
    parameter = torch.nn.Parameter(torch.zeros(()))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([parameter], lr=1.0),
        [("gate", parameter)],
        compression=getattr(hvd.Compression, compression),
    )
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        # d/dp of -(p · (rank + 1)); torch stores the sign in the negative bit.
        value = torch.complex(torch.zeros(()), parameter * (hvd.rank() + 1)).conj().imag
        value.backward()
        optimizer.step()
    assert torch.allclose(parameter.detach(), torch.tensor((hvd.size() + 1.0)))
    parameter.grad = torch._neg_view(torch.tensor(hvd.rank() + 1.0))
    optimizer.synchronize()
    assert torch.allclose(parameter.grad, torch.tensor(-(hvd.size() + 1) / 2))


def test_parameters_with_lazy_bits(hvd):
    number = hvd.rank() + 1.0
    conjugate = torch.tensor([complex(number, number)]).conj()
    both = torch._neg_view(torch.tensor([complex(number, number)]).conj())
    real = torch._neg_view(torch.tensor([number]))
    hvd.broadcast_parameters(
        [("conjugate", conjugate), ("both", both), ("real", real)], root_rank=0
    )
    assert conjugate.is_conj() and conjugate.tolist() == [1 - 1j]
    assert both.tolist() == [-1 + 1j]
    assert real.tolist() == [-1.0]


def bits(tensor):
    return tensor.view(torch.uint8).tolist()


def test_truth_values_of_other_bytes(hvd):
    size = hvd.size()
    one = [1, 0, 1, 1]
    for op in (hvd.Sum, hvd.Max, hvd.Min, hvd.Product):
        assert bits(hvd.allreduce(truth(), op=op)) == one
        tensor = truth()
        assert hvd.allreduce_(tensor, op=op) is tensor and bits(tensor) == one
        assert [bits(tensor) for tensor in hvd.grouped_allreduce([truth(), truth()], op=op)] == [
            one,
            one,
        ]
    assert bits(hvd.allgather(truth())) == one * size
    assert [bits(tensor) for tensor in hvd.grouped_allgather([truth()])] == [one * size]
    assert bits(hvd.broadcast(truth(), 0)) == one
    tensor = truth()
    hvd.broadcast_(tensor, 0)
    assert bits(tensor) == one
    rows = torch.full((size,), 2, dtype=torch.uint8).view(torch.bool)
    assert bits(hvd.alltoall(rows)) == [1] * size
    assert bits(hvd.reducescatter(rows, op=hvd.Sum)) == [1]
    # Inputs are unchanged.
    assert bits(rows) == [2] * size
    assert bits(hvd.allgather(truth()[:0])) == []


def test_truth_values_in_parameters_and_buffers(hvd):
    mask = truth()
    hvd.broadcast_parameters({"mask": mask}, root_rank=0)
    assert bits(mask) == [1, 0, 1, 1]


class Wrapper(torch.Tensor):
    """A subclass without memory, like those of torch that wrap other tensors."""

    @staticmethod
    def __new__(cls, tensor):
        return torch.Tensor._make_wrapper_subclass(cls, tensor.shape, dtype=tensor.dtype)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(str(function))


class Plain(torch.Tensor):
    """A subclass with memory of its own."""


def freed():
    tensor = torch.ones(3)
    tensor.storage().resize_(0)
    return tensor


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


def nested():
    make = torch.nested.nested_tensor if hasattr(torch, "nested") else torch.nested_tensor
    return make([torch.ones(2), torch.ones(3)])


KINDS = {
    "sparse": (
        lambda: torch.eye(3).to_sparse(),
        "torch.sparse.FloatTensor is not supported.*sparse_allreduce_async",
    ),
    "csr": (lambda: torch.eye(3).to_sparse_csr(), "is not supported.*to_dense"),
    "mkldnn": (lambda: torch.ones(3).to_mkldnn(), "is not supported.*to_dense"),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
        "is not supported",
    ),
    "complex": (lambda: torch.ones(3, dtype=torch.complex64), "is not supported"),
    "meta": (lambda: torch.ones(3, device="meta"), "on meta"),
    "zeros": (lambda: torch._efficientzerotensor((3,)), "has no memory"),
    "fake": (fake, "has no memory"),
    "functional": (lambda: torch._to_functional_tensor(torch.ones(3)), "has no memory"),
    "wrapper": (lambda: Wrapper(torch.ones(3)), "Wrapper, has no memory"),
    "freed": (freed, "has no memory"),
    "nested": (nested, "[Nn]ested"),
    "expanded": (lambda: torch.ones(1).expand(3), "contiguous"),
    "strided": (lambda: torch.ones(6)[::2], "contiguous"),
}


def made(kind):
    make, words = KINDS[kind]
    try:
        return make(), words
    except (AttributeError, ImportError, RuntimeError) as error:
        pytest.skip(f"not in this torch: {error}")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_in_place(hvd, kind):
    tensor, words = made(kind)
    for operation in (hvd.allreduce_async_, hvd.allreduce_):
        with pytest.raises(ValueError, match=words) as raised:
            operation(tensor, name=kind)
        assert raised.value.tensor == f"allreduce.{kind}"
        assert str(raised.value).startswith(f"allreduce.{kind}: ")
    with pytest.raises(ValueError, match=f"^broadcast.{kind}: .*{words}"):
        hvd.broadcast_(tensor, 0, name=kind)
    with pytest.raises(ValueError, match=f"grouped_allreduce.{kind}: tensor 2 of 2: .*{words}"):
        hvd.grouped_allreduce_([torch.ones(3), tensor], name=kind)
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2


@pytest.mark.parametrize(
    "kind", ["sparse", "csr", "mkldnn", "quantized", "complex", "meta", "freed"]
)
@pytest.mark.parametrize(
    "operation", ["allreduce", "allgather", "alltoall", "reducescatter", "broadcast"]
)
def test_what_is_refused_elsewhere(hvd, kind, operation):
    tensor, words = made(kind)
    arguments = (0,) if operation == "broadcast" else ()
    with pytest.raises(ValueError, match=words):
        getattr(hvd, operation)(tensor, *arguments)
    with pytest.raises(ValueError, match=words):
        handle = getattr(hvd, f"{operation}_async")(tensor, *arguments)
        hvd.synchronize(handle)
    if operation not in ("alltoall", "broadcast"):
        with pytest.raises(ValueError, match=words):
            getattr(hvd, f"grouped_{operation}")([tensor])


def test_batched_tensors(hvd):
    functorch = pytest.importorskip("functorch")

    def reduced(tensor):
        hvd.allreduce_(tensor)
        return tensor

    with pytest.raises(ValueError, match="has no memory|contiguous"):
        functorch.vmap(reduced)(torch.ones(2, 3))


def test_tensors_without_elements(hvd):
    assert hvd.allreduce(torch.ones(0)).tolist() == []
    assert hvd.allreduce_(torch.ones(3, 0)).shape == (3, 0)


def test_layouts_that_are_made_contiguous(hvd):
    size = hvd.size()
    assert hvd.allreduce(torch.ones(1).expand(3), op=hvd.Sum).tolist() == [size] * 3
    assert hvd.allreduce(torch.arange(4.0)[::2], op=hvd.Sum).tolist() == [0, 2 * size]
    negative = torch._neg_view(torch.ones(2, 3)).t()
    assert hvd.allreduce(negative, op=hvd.Sum).tolist() == [[-size] * 2] * 3


def test_subclasses_with_memory(hvd):
    tensor = torch.ones(3).as_subclass(Plain)
    assert hvd.allreduce(tensor, op=hvd.Sum).tolist() == [hvd.size()] * 3
    parameter = torch.nn.Parameter(torch.ones(3))
    hvd.allreduce_(parameter, op=hvd.Sum)
    assert parameter.tolist() == [hvd.size()] * 3


@pytest.mark.parametrize(
    "operation", ["allreduce", "allgather", "alltoall", "reducescatter", "broadcast"]
)
def test_what_is_no_tensor(hvd, operation):
    numpy = pytest.importorskip("numpy")
    arguments = (0,) if operation == "broadcast" else ()
    for value in ([1.0, 2.0], 3.0, None, "text", numpy.ones(3), torch.ones(3).storage()):
        for name in (operation, f"{operation}_async"):
            with pytest.raises(
                TypeError, match=f"expect.* a torch.Tensor, not .*{type(value).__name__}"
            ):
                getattr(hvd, name)(value, *arguments)
    with pytest.raises(TypeError, match="(?s)not list.*(grouped|as_tensor)"):
        getattr(hvd, operation)([torch.ones(2)], *arguments)
    if operation in ("allreduce", "broadcast"):
        for value in ([1.0], numpy.ones(3), torch.ones(3).storage()):
            with pytest.raises(
                TypeError, match=f"{operation}.x: expected a torch.Tensor, not"
            ) as raised:
                getattr(hvd, f"{operation}_")(value, *arguments, name="x")
            assert raised.value.tensor == f"{operation}.x"


def test_groups_of_what_is_no_tensor(hvd):
    for operation in (
        hvd.grouped_allreduce,
        hvd.grouped_allreduce_async_,
        hvd.grouped_allgather_async,
    ):
        with pytest.raises(TypeError, match="a torch.Tensor, not"):
            operation([torch.ones(2), [1.0]])


def test_dense_tensors_are_no_sparse_ones(hvd):
    with pytest.raises(ValueError, match="expects a sparse tensor.*to_sparse"):
        hvd.sparse_allreduce_async(torch.ones(3), "dense", hvd.Sum)
    with pytest.raises(TypeError, match="expects a torch.Tensor"):
        hvd.sparse_allreduce_async([1.0], "list", hvd.Sum)


def test_sparse_tensors_with_negative_values(hvd):
    values = torch._neg_view(torch.ones(2))
    tensor = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), values, (3,))
    result = hvd.sparse_allreduce_async(tensor, "negative", hvd.Sum)()
    assert result.to_dense().tolist() == [-hvd.size(), 0, -hvd.size()]


def test_parameters_that_have_no_bytes(hvd):
    with pytest.raises(ValueError, match="weight cannot be broadcast.*to_dense"):
        hvd.broadcast_parameters({"weight": torch.eye(3).to_sparse()}, root_rank=0)
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    with pytest.raises(ValueError, match="weight cannot be broadcast.*dequantize"):
        hvd.broadcast_parameters({"weight": quantized}, root_rank=0)
