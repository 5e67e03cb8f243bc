"""Batch normalization over the batches of all ranks, as if they were one.

With ``N`` values per channel in total, ``n`` of them on a rank, ``m`` their mean and ``s`` the sum
of their squared deviations from ``m`` (Chan, Golub, LeVeque, "Updating formulae and a pairwise
algorithm for computing sample variances", 1979):

    mean = Σ n·m / N        var = Σ (s + n·(m − mean)²) / N

and with ``x̂ = (x − mean) / σ``, ``σ² = var + eps``, and ``g`` the gradient of the output:

    ∂x = weight / σ · (g − Σg / N − x̂ · Σ(g·x̂) / N)        ∂weight = Σ g·x̂        ∂bias = Σ g

The sums in ``∂x`` are over all ranks; ``∂weight`` and ``∂bias`` are the rank's own sums, to be
averaged like the gradients of other parameters.
"""

from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from .mpi_ops import Sum, allgather, allreduce_, size


class SyncBatchNorm(_BatchNorm):
    """``torch.nn.BatchNorm1d``, ``2d`` or ``3d`` over the batches of all ranks, which may differ in
    size.

    Input and output: ``batch × num_features × …``, at least two dimensions, of float16, bfloat16,
    float32 or float64. In training all ranks call it; in evaluation it uses only the rank's own
    input.
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalizes; in training also updates the running statistics."""
        if not self.training or size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        with torch.no_grad():
            mean, var, count = _statistics(input)
            if count < 2:
                raise ValueError(f"training needs more than one value per channel; there is {count}")
            if self.running_mean is not None:
                self._move_running_statistics(mean, var * (count / (count - 1)))
        return _SyncBatchNorm.apply(input, self.weight, self.bias, mean, torch.rsqrt(var + self.eps), count)

    def _move_running_statistics(self, mean: torch.Tensor, var: torch.Tensor) -> None:
        self.num_batches_tracked.add_(1)
        momentum = 1 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(var.to(self.running_var.dtype), momentum)


class _SyncBatchNorm(torch.autograd.Function):
    """Normalizes with the statistics of all ranks."""

    @staticmethod
    def forward(ctx, input, weight, bias, mean, inverse_deviation, count):
        ctx.save_for_backward(input, weight, mean, inverse_deviation)
        ctx.count = count
        scale = inverse_deviation if weight is None else inverse_deviation * weight
        output = (input.to(mean.dtype) - _by_channel(mean, input)).mul_(_by_channel(scale, input))
        if bias is not None:
            output.add_(_by_channel(bias, input))
        return output.to(input.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, mean, inverse_deviation = ctx.saved_tensors
        dtype = mean.dtype
        g = grad_output.to(dtype)
        x_hat = (input.to(dtype) - _by_channel(mean, input)) * _by_channel(inverse_deviation, input)
        others = _all_but_channel(g)
        sum_g = g.sum(others)
        sum_g_x_hat = (g * x_hat).sum(others)
        # Torch converts them to the dtype of the parameters.
        grad_weight = sum_g_x_hat if weight is not None else None
        grad_bias = sum_g if weight is not None else None
        grad_input = None
        if ctx.needs_input_grad[0]:
            # The name contains the shape, so that layers of equal shape share one entry of the
            # response cache.
            name = f"sync_batch_norm.backward.{mean.numel()}"
            sums = allreduce_(torch.cat([sum_g, sum_g_x_hat]), name=name, op=Sum) / ctx.count
            mean_g, mean_g_x_hat = sums.chunk(2)
            scale = inverse_deviation if weight is None else inverse_deviation * weight
            grad_input = g - _by_channel(mean_g, g) - x_hat * _by_channel(mean_g_x_hat, g)
            grad_input = (grad_input * _by_channel(scale, g)).to(input.dtype)
        return grad_input, grad_weight, grad_bias, None, None, None


def _statistics(input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Mean and variance of each channel over all ranks, and the number of values; at least
    float32."""
    x = input.to(torch.promote_types(input.dtype, torch.float32))
    channels = x.shape[1]
    others = _all_but_channel(x)
    count = x.numel() // channels
    if count:
        mean = x.mean(others)
        deviations = (x - _by_channel(mean, x)).square().sum(others)
    else:
        mean = deviations = x.new_zeros(channels)
    # In float64, so that the count is exact.
    own = torch.cat([mean.double(), deviations.double(), x.new_tensor([count], dtype=torch.float64)])
    ranks = allgather(own.unsqueeze(0), f"sync_batch_norm.forward.{channels}")
    means, deviations, counts = ranks[:, :channels], ranks[:, channels:-1], ranks[:, -1:]
    total = counts.sum()
    mean = (means * counts).sum(0) / total
    var = (deviations + counts * (means - mean).square()).sum(0) / total
    return mean.to(x.dtype), var.to(x.dtype), int(total)


def _all_but_channel(x: torch.Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def _by_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Values per channel, in a shape that broadcasts with ``like``."""
    return values.view(1, -1, *[1] * (like.dim() - 2))
