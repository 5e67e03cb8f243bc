"""Models of the benchmarks, and their data."""
import torch
from torch import nn

VOCABULARY = 1000


class Tensors(nn.Module):
    """Parameters of these shapes, and a loss whose gradients take almost no time to compute."""

    def __init__(self, shapes):
        super().__init__()
        self.tensors = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in shapes)

    def forward(self):
        return sum(Ones.apply(tensor) for tensor in self.tensors)


class Ones(torch.autograd.Function):
    """Returns zero; its gradient is ones, allocated once."""

    made = {}

    @staticmethod
    def forward(context, tensor):
        context.shape = tensor.shape
        return torch.zeros(())

    @staticmethod
    def backward(context, gradient):
        if context.shape not in Ones.made:
            Ones.made[context.shape] = torch.ones(context.shape)
        return Ones.made[context.shape]


class SmallCnn(nn.Module):
    """A convolutional network for images of 8 × 8 pixels."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10),
        )

    def forward(self, images):
        return self.layers(images)


def digits(batch):
    """The first images and labels of scikit-learn's digits."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images[:batch], dtype=torch.float32).unsqueeze(1) / 16
    return images, torch.tensor(data.target[:batch])


class Transformer(nn.Module):
    """Decoder layers on random tokens."""

    def __init__(self, layers, width=256, heads=4):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens)))
