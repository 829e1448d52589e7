"""The deployable folder: written here, checked and run anywhere.

:func:`write_bundle` completes a folder around a linked library; :func:`load` reads its
:class:`Manifest`, checks what it needs of this machine, and gives a :class:`Bundle` to call.
:func:`read_manifest` and :func:`read_report` read a bundle that may be another machine's.
"""

from collage.bundle.bundle import Bundle, load
from collage.bundle.calling.function import BundleFunction
from collage.bundle.calling.random_inputs import random_array
from collage.bundle.calling.state import State
from collage.bundle.folder import filling, prepare_folder
from collage.bundle.manifest import Manifest, read_manifest, read_report
from collage.bundle.ownership import borrowed_outputs
from collage.bundle.profile import KernelTime, Profile
from collage.bundle.signature import FunctionEntry, Padding, Variant
from collage.bundle.writer import write_bundle

__all__ = [
    "Bundle",
    "BundleFunction",
    "FunctionEntry",
    "KernelTime",
    "Manifest",
    "Padding",
    "Profile",
    "State",
    "Variant",
    "borrowed_outputs",
    "filling",
    "load",
    "prepare_folder",
    "random_array",
    "read_manifest",
    "read_report",
    "write_bundle",
]
