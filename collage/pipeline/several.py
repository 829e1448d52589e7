"""Several functions into one bundle: each searched by itself, all compiled together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from collage.backends.contract.errors import InputError, MemoryLimitError
from collage.cost.processes.staging import compile_to_measure
from collage.cost.progress import ProgressEvent
from collage.end_to_end import memory_of
from collage.passes import drive, join_functions
from collage.pipeline.imported import Imported
from collage.pipeline.inputs.samples import Inputs, as_array, listed
from collage.pipeline.limits import Budget
from collage.pipeline.one_function import Search
from collage.pipeline.results.result import LIBRARY, Result
from collage.pipeline.results.sizes import sizes_remark
from collage.pipeline.shapes.bucketed import Bucketed
from collage.report import size_text

_JOINING_SHARE = 0.5
"""What compiling all functions together may take, in shares of one function."""


def best_of_all(
    search: Search, functions: Sequence[Bucketed], budget: Budget, inputs: Inputs | None
) -> Result:
    """The fastest partitioning of every function for every bucket of shapes, compiled together.

    They share one log, so what is equal among them is measured once, and one library, in which
    equal weights and kernels are there once.

    Parameters
    ----------
    search : Search
        How each is searched.
    functions : sequence of Bucketed
        The one that a call of the bundle itself calls comes first.
    budget : Budget
        Of all of them together; each gets an equal share of what is left.
    inputs : mapping or sequence of mapping, optional
        Samples; of several functions, by function name.

    Returns
    -------
    Result
        Of the first function; its report names the others.

    Raises
    ------
    UserError
        As :func:`collage.optimize` does.
    """
    session = search.session
    given = _by_variant(functions, inputs)
    parts = [(function, variant) for function in functions for variant in function.variants]
    results: dict[str, Result] = {}
    for number, (function, variant) in enumerate(parts):
        name = variant.function
        session.progress(ProgressEvent("function", number, len(parts), name))
        part = budget.part(1 / (len(parts) - number + _JOINING_SHARE))
        search.costing.begin(part)
        found = search.best_of(variant, part, given.get(name))
        remark = "" if function.course is not None else function.remark
        remarks = [*found.report.remarks, *([remark] if remark else [])]
        report = replace(found.report, function=name, remarks=remarks)
        results[name] = replace(found, report=report)
    session.progress(ProgressEvent("function", len(parts), len(parts), "all together"))
    # What a call of the bundle itself calls: the largest of its variants, where there are several;
    # of a model in parts, the largest part stands for it.
    ours = functions[0]
    largest = max(ours.variants, key=lambda part: len(part.graph))
    first = (ours.variants[-1] if ours.course is None else largest).function
    module = join_functions({name: result.module for name, result in results.items()})
    for function in functions:
        if function.course is not None:
            module = drive(module, function.name, function.course)
    together = memory_of(module, session.targets, list(results), session.context)
    limit = search.memory_limit_bytes
    if limit is not None and together.total_bytes > limit:
        raise MemoryLimitError(
            f"each function fits into {size_text(limit)}, but all of them together take {together}",
            value=together,
        )
    place = session.context.work_dir / "functions" / LIBRARY
    others = [result.report for name, result in results.items() if name != first]
    library = compile_to_measure(module, session.targets, place, session.context)
    report, size = results[first].report, sizes_remark(module, library, len(results))
    said = [function.remark for function in functions if function.course and function.remark]
    return replace(
        results[first],
        module=module,
        inputs=ours.entry.inputs,
        outputs=ours.entry.outputs,
        report=replace(report, remarks=[*report.remarks, *said, size], others=others),
        library=library,
        functions=results,
        entries=tuple(function.entry for function in functions),
        alternatives={},
        _libraries={},
        _exported=[],
    )


def _by_variant(functions: Sequence[Bucketed], inputs: Inputs | None) -> Mapping[str, Inputs]:
    """The user's samples, by the variant that they fit."""
    if inputs is None:
        return {}
    if any(function.course is not None for function in functions):
        raise InputError(
            "samples cannot be given to a model whose data choose what it computes: each of its "
            "parts is checked on inputs that are drawn",
            value=functions[0].name,
        )
    if len(functions) == 1:
        given = {functions[0].name: inputs}
    else:
        names = [function.name for function in functions]
        given = dict(inputs) if isinstance(inputs, Mapping) else {}
        unknown = [name for name in given if name not in names]
        if unknown or not given:
            raise InputError(
                f"the model has the functions {', '.join(names)}: give samples by function, for "
                f"example inputs={{'{names[0]}': {{...}}}}",
                value=unknown,
            )
    found: dict[str, Inputs] = {}
    for function in functions:
        if function.name in given:
            found |= _fitting(function, given[function.name])
    return found


def _fitting(function: Bucketed, inputs: Inputs) -> dict[str, Inputs]:
    """A function's samples by variant; what fits none is an error, as it is where there is one."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for sample in listed(inputs):
        fitting = [v for v in function.variants if _fits(v, sample)]
        variant = fitting[0] if fitting else function.variants[-1]
        found.setdefault(variant.function, []).append(sample)
    return dict(found)


def _fits(variant: Imported, sample: Mapping[str, Any]) -> bool:
    return all(
        as_array(info.name, sample[info.name]).shape == info.shape
        for info in variant.inputs
        if info.name in sample
    )
