"""Attributes of the ``tensorrt`` target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorrtOptions:
    """Attributes of the ``tensorrt`` target.

    Attributes
    ----------
    use_fp16, use_bf16 : bool
        Compute what the model has in float32 in half precision inside a region; what enters and
        leaves it keeps its dtype. At most one of the two.
    use_int8 : bool
        Run regions that hold ``quantize`` and ``dequantize`` operators in int8. Networks are
        strongly typed, so a model without them has no int8 form: its regions are then refused.
    use_tf32 : bool
        Let float32 convolutions and matrix products round their operands to TF32.
    max_workspace_size : int
        Bytes of scratch memory an engine may use; 0 for TensorRT's own limit.
    remove_no_mac_subgraphs : bool
        Refuse regions without a convolution or matrix product.
    tensorrt_version : str
        The version that must be installed, as far as it is given: ``10.13`` fits ``10.13.3.9``.
        Any version where it is empty.
    timing_cache : str
        File that keeps TensorRT's timings of its own kernels between builds on this machine; by
        default one per version and device under the cache folder.

    Raises
    ------
    ValueError
        When both half precisions are set, the workspace is negative, or the version is not written
        like ``10.13``.
    """

    use_fp16: bool = False
    use_bf16: bool = False
    use_int8: bool = False
    use_tf32: bool = False
    max_workspace_size: int = 0
    remove_no_mac_subgraphs: bool = False
    tensorrt_version: str = ""
    timing_cache: str = ""

    def __post_init__(self) -> None:
        if self.use_fp16 and self.use_bf16:
            raise ValueError("use_fp16 and use_bf16 exclude each other")
        if self.max_workspace_size < 0:
            raise ValueError(f"max_workspace_size is {self.max_workspace_size} bytes")
        parts = self.tensorrt_version.split(".") if self.tensorrt_version else []
        if not all(part.isdigit() for part in parts):
            raise ValueError(
                f"tensorrt_version must be like '10.13', not '{self.tensorrt_version}'"
            )

    def fits_version(self, version: str) -> bool:
        """Whether an installed version is the wanted one."""
        wanted = self.tensorrt_version.split(".") if self.tensorrt_version else []
        return version.split(".")[: len(wanted)] == wanted
