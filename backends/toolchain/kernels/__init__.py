"""TVM's CUDA kernels, compiled one by one to PTX: those that are known are assembled only.

A model's kernels are one source of TVM's, which one compiler would be at for a minute; and most of
them were compiled before, as parts of candidates or of another partitioning of the same model.
"""
