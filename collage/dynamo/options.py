"""What ``torch.compile`` hands on: its ``options`` and its ``mode``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from collage.backends.contract.errors import LogError, TargetError, UserError
from collage.pipeline.restrict import Wishes
from collage.targets import TargetLike, resolve_targets, usable_targets

SEARCH, REPLAY = "search", "replay"


@dataclass(frozen=True)
class Options:
    """The keys of ``options``; all but the first as :func:`collage.optimize` has them.

    Attributes
    ----------
    targets : sequence or None
        By default what is usable here for the device that the tensors are on.
    pin, ban : mapping, optional
        A pattern that matches nothing in one of a model's graphs is not looked for there.
    """

    targets: Sequence[TargetLike] | None = None
    log: str | Path | None = None
    replay: bool = False
    time_budget_sec: float | None = None
    strategy: str = "search"
    pin: Wishes | None = None
    ban: Wishes | None = None
    memory_limit_bytes: int | None = None
    max_error: float | None = None
    precision: Sequence[str] | None = None
    calibration: str = "auto"
    metric: Any = None
    refine_trials: int = 0
    refine_storage: str | None = None
    num_threads: int | None = None
    ieee_denormals: bool = False
    weights: str = "auto"
    seed: int = 0
    cost_model: Any = None
    workers: Any = "local"
    progress: Callable[..., Any] | None = None

    @classmethod
    def of(cls, mode: str | None, given: Mapping[str, Any] | None) -> Options:
        """What was asked for.

        Parameters
        ----------
        mode : str, optional
            ``search``, or ``replay``, which takes everything from the log; a log may follow
            (``replay:my.jsonl``), since PyTorch takes a mode or options, not both.
        given : mapping, optional
            The options.

        Returns
        -------
        Options
            Defaults where neither says anything.

        Raises
        ------
        UserError
            An unknown option or mode.
        LogError
            A replay without a log.
        """
        known = [field.name for field in fields(cls)]
        given = dict(given or {})
        if unknown := [name for name in given if name not in known]:
            raise UserError(
                f"unknown option '{unknown[0]}' for torch.compile; known: {', '.join(known)}",
                value=unknown[0],
            )
        kind, _, log = (mode or SEARCH).partition(":")
        if kind not in ("default", SEARCH, REPLAY):
            raise UserError(
                f"unknown mode '{mode}' for torch.compile; known: {SEARCH}, {SEARCH}:LOG, "
                f"{REPLAY}:LOG",
                value=mode,
            )
        if log:
            given["log"] = log
        if kind == REPLAY:
            given["replay"] = True
        if given.get("replay") and given.get("log") is None:
            raise LogError("a replay needs a log: mode='replay:LOG'", value=mode)
        return cls(**given)

    def for_optimize(self, device: str) -> dict[str, Any]:
        """The keywords of :func:`collage.optimize`.

        Raises
        ------
        TargetError
            When the targets are for another kind of device.
        """
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        found["targets"] = usable_targets(device) if self.targets is None else self.targets
        resolved = resolve_targets(found["targets"])
        if resolved.device.name != device:
            raise TargetError(
                f"the tensors are on '{device}', and the targets are for '{resolved.device.name}'",
                value=resolved.device.name,
            )
        return found
