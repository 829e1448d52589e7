"""A runner worker's work: load a library, check it against the reference, then time it."""

from __future__ import annotations

import gc
import pkgutil
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from collage.backends.contract.errors import MeasurementError
from collage.cost.processes.messages import (
    Check,
    Checked,
    Connect,
    Detected,
    Done,
    Failure,
    Judge,
    LibraryRequest,
    Load,
    Measure,
    Measured,
    Prepare,
    Run,
    Time,
    TimeCalls,
    Timed,
    TimedCalls,
)
from collage.cost.worker.loaded import LoadedLibrary
from collage.cost.worker.session import Session

T = TypeVar("T")


class RunService:
    """Runs one library at a time; whole models stay loaded between their turns.

    On a device that others measure on too, a run is three requests, of which only the second needs
    the device to itself: :meth:`prepare`, :meth:`measure` and :meth:`judge`.

    Parameters
    ----------
    session : str
        ``module:Class`` of the :class:`Session` to run in, which is opened when it is needed: that
        may make a context on a device, which takes a moment.
    """

    def __init__(self, session: str) -> None:
        self._session_name = session
        self._opened: Session | None = None
        self._loaded: dict[str, LoadedLibrary] = {}

    @property
    def _session(self) -> Session:
        if self._opened is None:
            self._opened = pkgutil.resolve_name(self._session_name)()
        return self._opened

    def open(self) -> None:
        """Begin to use the device, so that no candidate is charged for it.

        Raises
        ------
        MeasurementError
            When it cannot be used.
        """
        self._session.synchronize()

    @property
    def crowded(self) -> bool:
        """Whether others hold most of the device's memory; see :meth:`Session.crowded`."""
        return self._opened is not None and self._opened.crowded()

    def run(self, request: Run) -> Measured | Failure:
        """Load, check, time, check again, and let go."""

        def work() -> Measured | Failure:
            loaded = self._load(request)
            loaded.start()
            if isinstance(before := loaded.check(loaded.outputs()), Failure):
                return before
            return loaded.conclude(loaded.time(loaded.session.sample))

        return self._let_go(self._guarded(work))

    def prepare(self, request: Prepare) -> Done:
        """Load and upload what :meth:`run` is asked for; nothing is called yet."""
        self._guarded(lambda: self._load(request))
        return Done()

    def measure(self, _: Measure) -> Done:
        """Call and time what was prepared, right or wrong."""
        loaded = self._current()
        self._guarded(loaded.measure)
        return Done()

    def judge(self, _: Judge) -> Measured | Failure:
        """Check what was measured, and let go; answers as :meth:`run` does."""
        return self._let_go(self._guarded(self._current().judge))

    def load(self, request: Load) -> Checked | Failure:
        """Load a library and check it; it stays."""

        def work() -> Checked | Failure:
            loaded = self._load(request, request.name)
            loaded.start()
            loaded.session.settle(loaded.machine)
            checked = loaded.check(loaded.outputs())
            answer = checked if isinstance(checked, Failure) else loaded.check_others()
            loaded.session.rest(request.library)
            return answer

        return self._guarded(work, request.name)

    def time(self, request: Time) -> Timed:
        """Time a whole model that was loaded, or a candidate."""
        loaded = self._current(request.name)

        def work() -> Timed:
            loaded.resume()
            session = loaded.session
            return loaded.time(session.sample if request.as_part else session.sample_model)

        return self._guarded(work, request.name)

    def check(self, request: Check) -> Checked | Failure:
        """Check a loaded library once more."""
        loaded = self._current(request.name)

        def work() -> Checked | Failure:
            loaded.resume()
            return loaded.check(loaded.outputs())

        return self._guarded(work, request.name)

    def take_apart(self, request: TimeCalls) -> TimedCalls:
        """Time each call inside a whole model that was loaded."""
        loaded = self._current(request.name)

        def work() -> TimedCalls:
            loaded.resume()
            return TimedCalls(calls=loaded.session.take_apart(loaded.machine))

        return self._guarded(work, request.name)

    def connect(self, request: Connect) -> Detected:
        """Run libraries on another machine; what ran before is let go."""
        # Nobody but who needs it imports TVM's RPC.
        from collage.cost.worker.rpc.session import RpcSession

        self._loaded.clear()
        self._opened = None
        gc.collect()  # An error's trace may still hold the session before, and so its server.
        session = RpcSession(request)
        detected = session.detect()
        self._opened = session
        return detected

    def _load(self, request: LibraryRequest, name: str = "") -> LoadedLibrary:
        self._loaded[name] = LoadedLibrary(request, self._session)
        return self._loaded[name]

    def _let_go(self, answer: Measured | Failure) -> Measured | Failure:
        self._loaded.clear()
        if not self._guarded(self._session.release):
            return replace(answer, replace=True)
        return answer

    def _guarded(self, work: Callable[[], T], name: str = "") -> T:
        """Do it; when it fails and took the device along, that is what is reported.

        What was loaded then stays referenced: freeing memory on a lost device ends the process,
        which must not happen before the answer is out.
        """
        try:
            done = work()
            self._session.end()
            return done
        except Exception as err:
            lost = self._session.lost(err)
            if lost is not None:
                raise lost from err
            self._session.end()
            self._loaded.pop(name, None)
            raise

    def _current(self, name: str = "") -> LoadedLibrary:
        if name not in self._loaded:
            raise MeasurementError("no library was loaded", value=name)
        return self._loaded[name]
