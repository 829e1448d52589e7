"""Calls the first entry of a linked library with tensors that claim to be on some device.

    python cudnn_call.py LIBRARY DEVICE_TYPE NUM_ARGUMENTS NEEDED_LIBRARY...

prints the error's type and message. The tensors lie in host memory: an entry must fail before it
touches them.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
import tvm
import tvm_ffi

SHAPES = [(1, 8, 8, 16), (16, 3, 3, 16), (1, 1, 1, 16), (1, 8, 8, 16)]


class Claimed:
    """A tensor whose DLPack capsule names another device."""

    def __init__(self, tensor: Any, device_type: int) -> None:
        self.capsule = tensor.__dlpack__()
        self.device_type = device_type
        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.restype = ctypes.c_void_p
        pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
        # DLTensor: data pointer, then the device's type.
        managed = pointer_of(self.capsule, b"dltensor")
        ctypes.c_int32.from_address(managed + 8).value = device_type

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device_type, 0)


def main(library: str, device_type: int, num_arguments: int, needed: list[str]) -> None:
    for path in needed:
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    entry = tvm.runtime.load_module(library).get_function("cudnn_0", query_imports=True)
    tensors = [tvm.runtime.tensor(np.zeros(shape, "float16")) for shape in SHAPES]
    claimed = [tvm_ffi.from_dlpack(Claimed(tensor, device_type)) for tensor in tensors]
    try:
        entry(*claimed[:num_arguments])
    except (TypeError, RuntimeError, ValueError) as err:
        print(type(err).__name__, err, flush=True)
    # The claims would be freed as if they were true.
    sys.stdout.flush()
    ctypes.CDLL(None)._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
