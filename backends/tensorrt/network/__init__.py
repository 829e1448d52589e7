"""A TensorRT network as converters see it: layers to ask for, constants bound once, plain values.

Nothing is exported: converters are given the writer, whose base is ``layers`` over ``constants``.
"""

__all__: list[str] = []
