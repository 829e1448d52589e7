"""Why ``torch.export`` could not take a module, as the user reads it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collage.backends.contract.errors import telling_line

_ASKING = (
    re.compile(r'The following call raised this error:.*?File "([^"]+)", line (\d+)', re.S),
    re.compile(r"Caused by: \(([^\s:]+):(\d+) in "),
)
"""Where PyTorch says which line needed to know what a tensor holds; the first is the model's."""


_NESTED = ("torch", "nested")
"""The folder of what makes nested tensors."""


def reason_of_failure(error: Exception, parts: Mapping[str, Any]) -> str:
    """What is in the way, and what to do about it.

    Parameters
    ----------
    error : Exception
        That PyTorch raised.
    parts : mapping of str to torch.nn.Module
        The module's, by their paths.

    Returns
    -------
    str
        One line.
    """
    found = _packed(error) or _observing(parts) or _undecided(error) or scripted(parts)
    found = found or _nested(error) or _unknown_kind(error) or _untraced(error)
    return found or f"{telling_line(error)}{_place(error)}"


def scripted(parts: Mapping[str, Any]) -> str | None:
    """What to do about parts of TorchScript's, as ``torch.jit`` makes them; None without any."""
    import torch

    compiled = (path for path, part in parts.items() if isinstance(part, torch.jit.ScriptModule))
    found = next(compiled, None)
    if found is None:
        return None
    which = f"its part '{found}'" if found else "it"
    return (
        f"{which} is TorchScript's, of torch.jit.trace or torch.jit.script; give the "
        "torch.nn.Module that was compiled, or the model as ONNX"
    )


def _packed(error: Exception) -> str | None:
    """What to do about weights in a library's own form; None where that is not what went wrong."""
    if "PackedParamsBase" not in str(error) and "CellParamsBase" not in str(error):
        return None
    return (
        "its weights are packed for one library, as quantize_dynamic and convert_fx leave them; "
        "quantize the network by torchao, with pt2e (prepare_pt2e, convert_pt2e) or quantize_"
    )


def _undecided(error: Exception) -> str | None:
    """Which line of a model asks what tensors hold; None where that is not what went wrong."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    if not isinstance(error, GuardOnDataDependentSymNode):
        return None
    frames = _own_frames(error)
    if frames:
        place = f"{frames[-1].filename}:{frames[-1].lineno}"
    else:
        found = next(filter(None, (asking.search(str(error)) for asking in _ASKING)), None)
        if found is None:
            return None
        place = f"{_whole(error, found[1])}:{found[2]}"
    return (
        f"what runs depends on what tensors hold at {place}; write that with "
        'torch.cond or torch.where, or call torch.compile(model, backend="collage"), which '
        "compiles what lies before and behind it"
    )


def _whole(error: Exception, end: str) -> str:
    """The path of a file of which PyTorch leaves out what it shares with its own."""
    files = (frame.filename for frame in traceback.extract_tb(error.__traceback__))
    return next((file for file in files if file.endswith(end)), end)


def _observing(parts: Mapping[str, Any]) -> str | None:
    """What to do about parts that collect what a quantization needs; None without any."""
    found = next((path for path, part in parts.items() if type(part).__name__ in _OBSERVERS), None)
    return None if found is None else quantization_not_done(f"its part '{found}'")


_OBSERVERS = frozenset(
    [
        *("FakeQuantize", "FusedMovingAvgObsFakeQuantize", "HistogramObserver", "MinMaxObserver"),
        *("MovingAverageMinMaxObserver", "PerChannelMinMaxObserver"),
        "MovingAveragePerChannelMinMaxObserver",
    ]
)
"""Of PyTorch and torchao, which name them alike."""


def quantization_not_done(which: str) -> str:
    """What is said of a network that is prepared for a quantization.

    Parameters
    ----------
    which : str
        What was found in it.

    Returns
    -------
    str
        What to do.
    """
    return (
        f"{which} is there to train or observe a quantization that is not done yet; convert the "
        "network (convert_pt2e after prepare_qat_pt2e or prepare_pt2e), or give the network before "
        "it was prepared"
    )


_UNKNOWN = re.compile(r"Found <class '([^']+)'> in (input|output)")


def gives_unknown(error: Exception) -> bool:
    """Whether a module gives something of a kind that PyTorch cannot take apart.

    Parameters
    ----------
    error : Exception
        That PyTorch raised.

    Returns
    -------
    bool
        False of what it takes.
    """
    found = _UNKNOWN.search(str(error))
    return found is not None and found[2] == "output"


def _unknown_kind(error: Exception) -> str | None:
    """What may go in and come out; None where that is not what went wrong."""
    found = _UNKNOWN.search(str(error))
    if found is None:
        return None
    verb = "takes" if found[2] == "input" else "gives"
    return (
        f"it {verb} a {found[1].rpartition('.')[2]}; what goes in and comes out may be tensors, "
        "None, numbers and text in tuples, lists and dicts, and in data classes that "
        "torch.export.register_dataclass was told of"
    )


def _place(error: Exception) -> str:
    """Where in the model's own code something failed."""
    frames = _own_frames(error)
    if not frames:
        return ""
    left_out = (
        "; while a model is traced it may not fill in inputs that are left out: give them all"
        if "NoneType" in str(error)
        else ""
    )
    return f", at {frames[-1].filename}:{frames[-1].lineno}{left_out}"


def _own_frames(error: Exception) -> list[traceback.FrameSummary]:
    """Where an error went through a model's own code, the innermost place last."""
    import torch

    others = {Path(torch.__file__).parent, _OWN_PACKAGE}
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not others & set(Path(frame.filename).parents)
        and Path(frame.filename).is_file()
        and Path(frame.filename).name not in _BETWEEN
    ]


_OWN_PACKAGE = Path(__file__).parents[3]
_BETWEEN = frozenset(["contextlib.py", "functools.py"])
"""Files of Python's own that lie between a model's frames."""


def _nested(error: Exception) -> str | None:
    """What to do about nested tensors; None where that is not what went wrong."""
    files = [Path(frame.filename).parts for frame in traceback.extract_tb(error.__traceback__)]
    makes = any(_NESTED in (file[-3:-1], file[-4:-2]) for file in files)
    if "_nested_" not in str(error) and not makes:
        return None
    return "it makes nested tensors, whose rows data choose; pad them, with a mask of what is there"


def _untraced(error: Exception) -> str | None:
    """Of operators that PyTorch runs but cannot trace it says nothing but the name."""
    from torch._subclasses import fake_tensor

    operator = getattr(error, "func", None)
    if isinstance(error, fake_tensor.UnsupportedOperatorException):
        return f"PyTorch cannot trace {operator}"
    unknown = (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException)
    if not isinstance(error, unknown):
        return None
    loss = "; compute the loss outside of the model" if "_loss" in str(operator) else ""
    return f"what {operator} gives depends on data{loss}"
