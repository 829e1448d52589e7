"""The first stage for all that is asked of a model: its functions, for every bucket of shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from collage.backends.contract import TargetSet
from collage.backends.contract.errors import ShapeError
from collage.cost.progress import ProgressCallback
from collage.importers import ExampleInputs
from collage.importers.functions import MAIN
from collage.importers.torch import export_module
from collage.pipeline.expected_buckets import expected_buckets
from collage.pipeline.imported import import_functions
from collage.pipeline.limits import Budget
from collage.pipeline.one_function import Search
from collage.pipeline.shapes.bucketed import Bucketed, import_buckets
from collage.pipeline.shapes.buckets import Buckets, Given, buckets_of


def import_bucketed(
    shapes: Given,
    most: int,
    importing: Callable[[Buckets], list[Bucketed]],
    search: Search,
    budget: Budget,
) -> list[Bucketed]:
    """The model's functions, for the buckets that were asked for or are expected to do best.

    Parameters
    ----------
    shapes : mapping
        As :func:`collage.optimize` takes them.
    most : int
        How many buckets are chosen where that is left open.
    importing : callable
        Gives the functions for buckets.
    search : Search
        Says what buckets are expected to take.
    budget : Budget
        Its time.

    Returns
    -------
    list of Bucketed
        The one that a call of the bundle itself calls comes first.

    Raises
    ------
    ShapeError
        When shapes are missing or wrong.
    """
    if most < 2:
        raise ShapeError(f"most_buckets is {most}, and has to be 2 or more", value=most)
    buckets = buckets_of(shapes)
    if not buckets.shares:
        return importing(buckets)
    buckets, remark = expected_buckets(buckets, most, importing, search, budget)
    return [
        replace(found, remark="; ".join(filter(None, [remark, found.remark])))
        for found in importing(buckets)
    ]


def import_for(
    model: Any,
    targets: TargetSet,
    buckets: Buckets,
    *,
    allow_code: bool,
    example_inputs: ExampleInputs,
    dynamic_shapes: Any,
    check_sec: float | None,
    progress: ProgressCallback,
) -> list[Bucketed]:
    """The model's functions, for every bucket of shapes.

    Parameters
    ----------
    model, allow_code, example_inputs, dynamic_shapes, progress
        As :func:`collage.optimize` takes them.
    targets : TargetSet
        What they are going to run on.
    buckets : Buckets
        Of shapes.
    check_sec : float or None
        As :func:`collage.importers.load_model` takes it.

    Returns
    -------
    list of Bucketed
        The one that a call of the bundle itself calls comes first.

    Raises
    ------
    ModelError, ShapeError
        As :func:`collage.pipeline.imported.import_model` does.
    """
    if dynamic_shapes is not None:
        # Exported once, whatever the shapes.
        model, example_inputs = (
            export_module(model, example_inputs, dynamic_shapes, check_sec),
            None,
        )
    if len(buckets.buckets) > 1:
        if example_inputs is not None:
            raise ShapeError(
                "a torch.nn.Module has the shapes of its example_inputs; for several, give "
                "dynamic_shapes, its open dimensions",
                value=list(buckets.buckets),
            )
        return import_buckets(
            model, targets.device, buckets, allow_code=allow_code, progress=progress
        )
    (bucket,) = buckets.buckets
    functions = import_functions(
        *(model, targets.device),
        shapes=bucket.shapes,
        allow_code=allow_code,
        example_inputs=example_inputs,
        check_sec=check_sec,
        progress=progress,
    )
    course = functions[0].course
    if course is not None:
        remark = "; ".join(course.remarks)
        return [Bucketed(MAIN, tuple(functions), remark=remark, course=course)]
    return [Bucketed(function.function, (function,)) for function in functions]
