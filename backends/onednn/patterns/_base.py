"""What every pattern of oneDNN is checked for."""

from __future__ import annotations

from tvm import relax

from collage.backends.contract import Match, PatternTriple, Predicate, Verdict
from collage.backends.relax.patterns import Chain, all_of, float32_tensors
from collage.backends.relax.static_shape import tensor_shape

MAX_RANK = 6
"""oneDNN's kernels are made for at most this many dimensions."""

_LAYOUTS = ("NCW", "NCHW", "NCDHW")


def triple(name: str, chain: Chain, *predicates: Predicate) -> PatternTriple:
    """A pattern of float32 tensors with as many dimensions as the library's kernels take.

    Parameters
    ----------
    name : str
        Without the backend's.
    chain : Chain
        What is matched.
    *predicates : callable
        What else has to hold.

    Returns
    -------
    PatternTriple
        Named ``onednn.`` and the name.
    """
    check = all_of(float32_tensors, ranks, *predicates)
    return PatternTriple(f"onednn.{name}", chain.pattern, check, dict(chain.annotations))


def ranks(match: Match) -> Verdict:
    """Refuses more dimensions than kernels are made for, and none at all."""
    for name, expr in {"result": match.root, **match.annotated}.items():
        shape = tensor_shape(expr)
        if shape is not None and len(shape) > MAX_RANK:
            return Verdict.no(f"{name} has {len(shape)} dimensions, more than {MAX_RANK}")
    if tensor_shape(match.root) == ():
        return Verdict.no("the result has no dimensions")
    return Verdict.yes()


def call_of(match: Match) -> relax.Call:
    """The operator that a chain begins with."""
    call = match.annotated["root"]
    assert isinstance(call, relax.Call)
    return call


def channels_first(match: Match) -> Verdict:
    """Refuses images in another layout than the operators of Relax have by default."""
    attrs = call_of(match).attrs
    layout = str(getattr(attrs, "data_layout", getattr(attrs, "layout", "")))
    made = str(getattr(attrs, "out_layout", ""))
    if layout not in _LAYOUTS or made not in (layout, ""):
        return Verdict.no(f"layout {layout} to {made}; only {', '.join(_LAYOUTS)} are supported")
    return Verdict.yes()
