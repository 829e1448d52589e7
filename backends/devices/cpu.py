"""The processor, by way of LLVM."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tvm

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import TargetError
from collage.backends.contract.llvm import without_interleaving
from collage.backends.devices._base import DeviceKind
from collage.backends.devices.cpu_flags import lacking_here
from collage.backends.toolchain.openmp_pool import pool_library

FLUSHED, IEEE = "flushed", "ieee"
"""Answers of :meth:`_CpuDevice.denormals`."""


def _require_known(attributes: Mapping[str, Any]) -> None:
    """LLVM itself compiles for any processor, in place of one that it does not know."""
    mcpu = str(attributes["mcpu"])
    machine = {key: attributes[key] for key in ("mtriple",) if key in attributes}
    target = tvm.target.Target({"kind": _CpuDevice.target_kind, **machine})
    known = list(map(str, tvm.target.codegen.llvm_get_cpu_archlist(target)))
    if mcpu not in known:
        near = " or ".join(difflib.get_close_matches(mcpu, known))
        meant = f"; did you mean {near}?" if near else "; leave mcpu out for this machine's"
        raise TargetError(f"LLVM knows no processor '{mcpu}'{meant}", value=mcpu)


class _CpuDevice(DeviceKind):
    """The processor of this machine, or one like it."""

    name = "cpu"
    target_kind = "llvm"
    lock_poll_sec = 0.02
    """A look takes up to 0.1 ms of a core, which may be one that another process times on."""
    compiles_beside = False
    folds_quantized = True
    cuts_splits = True
    reads_mapped = True

    def any_target(self) -> tvm.target.Target:
        return tvm.target.Target(self.target_kind)

    def complete(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        attributes = dict(attributes)
        if isinstance(features := attributes.get("mattr", []), str):
            attributes["mattr"] = features = features.split(",")
        if "mcpu" in attributes:
            _require_known(attributes)
        if {"mcpu", "mtriple", "tag"} & set(attributes):
            return attributes
        # A bare "llvm" means this machine: without a CPU name LLVM would emit SSE2 code.
        mcpu = str(tvm.target.codegen.llvm_get_system_cpu())
        features = [*lacking_here(mcpu), *features]
        return {**attributes, "mcpu": mcpu, **({"mattr": features} if features else {})}

    def architecture(self, target: tvm.target.Target) -> str:
        return str(target.attrs.get("mcpu", target))

    def host_target(self, target: tvm.target.Target) -> tvm.target.Target:
        return target

    @contextmanager
    def compiling(
        self, target: tvm.target.Target, context: BuildContext
    ) -> Iterator[tvm.target.Target]:
        yield without_interleaving(target)

    def denormals(self, context: BuildContext) -> str:
        return IEEE if context.ieee_denormals else FLUSHED

    def threads(self, context: BuildContext) -> Path | None:
        return pool_library(context)

    def is_here(self) -> bool:
        return True

    def runtime_device(self) -> tvm.runtime.Device:
        return tvm.cpu(0)


CPU = _CpuDevice()
