"""Attributes of the ``onednn`` target."""

from __future__ import annotations

from dataclasses import dataclass

LAYOUTS = ("auto", "blocked", "nhwc", "plain")
"""Layouts of pictures inside a region; same order as ``Layout`` in ``templates/plan.h``."""


@dataclass(frozen=True)
class OnednnOptions:
    """Attributes of the ``onednn`` target.

    Attributes
    ----------
    layout : str
        Memory layout of pictures between a region's convolutions: ``auto`` lets oneDNN choose for
        each kernel, ``blocked`` (nChw16c) and ``nhwc`` insist where there is a kernel for it,
        ``plain`` keeps NCHW throughout.
    """

    layout: str = "auto"

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, not '{self.layout}'")
