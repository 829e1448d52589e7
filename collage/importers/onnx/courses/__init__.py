"""Graphs whose course data choose, cut into straight-line parts and what calls them.

``cutter`` takes a graph apart at the nodes whose course is not known, in ``stages``; ``rounds``
writes a Loop as one with states alone, among them whether it goes on; ``parts`` imports what lies
between.
"""

from collage.importers.onnx.courses.model import import_course

__all__ = ["import_course"]
