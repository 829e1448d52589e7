"""Compiles ahead of a machine's first search what libraries need, whatever the model is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from collage.config import Config
from collage.cost.deadline import Deadline
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.pipeline.prefetch import Prefetch, missing
from collage.targets import TargetLike, resolve_targets

_TELL_SEC = 0.5


def precompile(
    targets: Sequence[TargetLike] | None = None, *, progress: ProgressCallback | None = None
) -> tuple[Path, ...]:
    """Compile what the targets' libraries need, so that no search waits for it.

    :func:`collage.optimize` does the same beside importing a model, which on few cores takes most
    of a short time budget. What is made stays in the cache folder until a library, the compiler or
    Collage itself is another version: for an image of a container, say.

    Parameters
    ----------
    targets : sequence, optional
        As of :func:`collage.optimize`; all libraries for a CPU that are usable here by default.
    progress : callable, optional
        Informed of each object.

    Returns
    -------
    tuple of Path
        The objects that were not there before.

    Raises
    ------
    TargetError, BackendUnavailableError
        As :func:`collage.optimize` does.
    CompileError
        When the compiler is missing or fails; carries its messages.

    Examples
    --------
    >>> import collage
    >>> made = collage.precompile(["llvm", "openblas"])
    >>> collage.precompile(["llvm", "openblas"])
    ()
    """
    tell = ignore if progress is None else progress
    resolved = resolve_targets(targets)
    context = Config.from_environment().build_context()
    wanted = [compilation.output for compilation in missing(resolved, context)]
    if not wanted:
        return ()
    tell(ProgressEvent("compile", 0, len(wanted)))
    with Prefetch(resolved, context) as prefetch:
        while prefetch.is_under_way:
            prefetch.wait(Deadline.after(_TELL_SEC))
            done = [path.stem.rpartition("-")[0] for path in wanted if path.exists()]
            tell(ProgressEvent("compile", len(done), len(wanted), ", ".join(done)))
    # What failed in the background says here why.
    for compilation in missing(resolved, context):
        compilation.run()
    return tuple(wanted)
