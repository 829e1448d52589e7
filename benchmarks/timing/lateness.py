"""Where a thread is that takes longer than it should."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FRAMES, _AGAIN_SEC = 10, 5.0


@contextmanager
def told_where_it_is(after_sec: float) -> Iterator[None]:
    """Show again and again where this thread is once that has taken longer: the last words of a
    search that is ended for being late."""
    thread, over = threading.get_ident(), threading.Event()

    def tell() -> None:
        began = time.perf_counter()
        late = not over.wait(min(after_sec, threading.TIMEOUT_MAX))
        while late:
            frames = traceback.extract_stack(sys._current_frames()[thread])[-_FRAMES:]
            places = " > ".join(f"{Path(f.filename).stem}.{f.name}:{f.lineno}" for f in frames)
            print(f"[{time.perf_counter() - began:.1f} s] late, at {places}", flush=True)
            late = not over.wait(_AGAIN_SEC)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
