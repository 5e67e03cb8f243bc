"""Shapes of a model's tensors, without a framework."""


def resnet50_shapes():
    """The 161 tensors of ResNet-50 (He et al., 2016, table 1): convolutions, batch norms and one
    linear layer."""
    shapes = []

    def convolution(into, out_of, size):
        shapes.extend([(into, out_of, size, size), (into,), (into,)])

    convolution(64, 3, 7)
    channels = 64
    for width, blocks in [(64, 3), (128, 4), (256, 6), (512, 3)]:
        for block in range(blocks):
            convolution(width, channels, 1)
            convolution(width, width, 3)
            convolution(4 * width, width, 1)
            if block == 0:
                convolution(4 * width, channels, 1)
            channels = 4 * width
    return shapes + [(1000, channels), (1000,)]
