"""The report of an optimization: its data, explanations, and how they look."""

from collage.report.data import (
    Alternative,
    EndToEnd,
    NodeInfo,
    PartitionInfo,
    RejectionInfo,
    Report,
    SearchStats,
    shape_text,
)

__all__ = [
    "Alternative",
    "EndToEnd",
    "NodeInfo",
    "PartitionInfo",
    "RejectionInfo",
    "Report",
    "SearchStats",
    "shape_text",
]
