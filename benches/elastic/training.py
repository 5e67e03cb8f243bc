"""Training of the fault campaign: linear regression on fixed data, whose result follows from the
samples of each rank in each step.

Ranks run it with `ronde.torch`, and the judge repeats it in one process from the ranks' logs. In
float64 the order of the sum over the ranks changes the last bits. As the problem is convex, such
differences do not grow from step to step; those of a network do, to 1e-8 within a thousand steps.
The learning rate is so small that the effect of a lost or repeated step lasts for hundreds of
steps.
"""

import torch

SAMPLES = 240
BATCH = 4  # samples per rank and step
COMMIT_STEPS = 7  # steps between two commits; an epoch ends with one, too
LEARNING_RATE = 0.001
SAMPLER_SEED = 5


def data():
    """Inputs (n, 6) and targets (n, 1), float64."""
    generator = torch.Generator().manual_seed(11)
    inputs = torch.randn(SAMPLES, 6, generator=generator, dtype=torch.float64)
    return inputs, torch.sin(inputs.sum(dim=1, keepdim=True))


def model():
    torch.manual_seed(3)
    return torch.nn.Linear(6, 1).double()


def optimizer(network):
    return torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, momentum=0.9)


def loss(network, inputs, targets):
    return (network(inputs) - targets).pow(2).mean()


def weights(network):
    """All weights, as one list of numbers."""
    return torch.cat([weight.detach().flatten() for weight in network.parameters()]).tolist()


def repeat(steps):
    """Weights before the first of `steps`, and after each, in one process. A step is a list of the
    ranks' lists of samples."""
    inputs, targets = data()
    network = model()
    descent = optimizer(network)
    found = [weights(network)]
    for ranks in steps:
        descent.zero_grad()
        mean = sum(loss(network, inputs[samples], targets[samples]) for samples in ranks)
        (mean / len(ranks)).backward()
        descent.step()
        found.append(weights(network))
    return found
