"""What processes share through files: findings, the log's lines, and whose turn it is on a device.

A backend that tries things out while it compiles writes a :class:`TuningStage`: its questions, how
a finding answers one, and how those that are left are measured. The stage keeps them in a
:class:`TuningStore`, in the user's log and in the machine's cache folder, so that each is measured
once and a strict replay needs the log alone. Whoever times something holds the device,
:func:`exclusive`. What a process needs for as long as it lives is in an :class:`OwnFolder`.
"""

from typing import TYPE_CHECKING

from collage._on_demand import on_demand

if TYPE_CHECKING:
    from collage.backends.storage.device_lock import exclusive, lock_path
    from collage.backends.storage.own_folder import OwnFolder, scratch_parent
    from collage.backends.storage.tuning_record import BlobReference, TuningRecord
    from collage.backends.storage.tuning_stage import TuningStage
    from collage.backends.storage.tuning_store import CACHE_FILE, TuningStore, read_findings

__all__ = [
    "CACHE_FILE",
    "BlobReference",
    "OwnFolder",
    "TuningRecord",
    "TuningStage",
    "TuningStore",
    "exclusive",
    "lock_path",
    "read_findings",
    "scratch_parent",
]

# On demand: the command line reads URLs of logs long before it needs TVM.
__getattr__, __dir__ = on_demand(
    __name__,
    {
        "device_lock": ("exclusive", "lock_path"),
        "own_folder": ("OwnFolder", "scratch_parent"),
        "tuning_record": ("BlobReference", "TuningRecord"),
        "tuning_stage": ("TuningStage",),
        "tuning_store": ("CACHE_FILE", "TuningStore", "read_findings"),
    },
)
