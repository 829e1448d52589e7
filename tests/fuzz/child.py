"""Feeds one subject with mutated inputs, in a process that may die of it.

``python -m tests.fuzz.child KIND SEED COUNT FOLDER`` prints the number of each input before it is
read, and a line of JSON for each that ended otherwise than it may.
"""

from __future__ import annotations

import json
import random
import resource
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from tests.fuzz.subjects import SUBJECTS

MOST_SEC = 20.0
MOST_MIB = 1024.0


def main(kind: str, seed: int, count: int, folder: Path) -> None:
    subject = SUBJECTS[kind](folder)
    signal.signal(signal.SIGALRM, _too_long)
    for number in range(seed, seed + count):
        print(number, flush=True)
        before_mib, begin = _peak_mib(), time.process_time()
        wrong = ""
        signal.alarm(120)
        try:
            subject.feed(random.Random(f"{kind} {number}"))
        except subject.allowed as err:
            if "\n" in str(err) or not str(err):
                wrong = f"not one line: {str(err)[:300]!r}"
        except Exception as err:  # noqa: BLE001 - whatever it is, it is wrong
            wrong = f"{type(err).__name__}: {str(err)[:300]}"
        signal.alarm(0)
        took_sec, grown_mib = time.process_time() - begin, _peak_mib() - before_mib
        if took_sec > MOST_SEC or grown_mib > MOST_MIB:
            wrong = wrong or f"took {took_sec:.1f} s and {grown_mib:.0f} MiB"
        if wrong:
            print(json.dumps({"number": number, "wrong": wrong}), flush=True)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _too_long(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError("it hangs")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
