"""How the steps of LSTM, GRU and RNN are cut for a CPU."""

from __future__ import annotations

import math

import tvm
from tvm import relax

from collage.backends.relax.recurrent import Recurrence
from collage.backends.relax.recurrent.blocking import Blocking
from collage.backends.relax.recurrent.program import legalize, legalize_plainly
from collage.backends.tvm.common.machine import Machine

_FEWEST_SUMS = 4
"""Vectors that are summed at once, so that no sum waits for the one before: an FMA takes 4 cycles.
"""

_SHARED_BYTES = 2 << 20
"""Weights of one direction from which on the blocks of a step are shared among threads: smaller
ones stay in one core's second cache, and waiting for one another at each step costs more."""


def legalize_recurrent(
    builder: relax.BlockBuilder, call: relax.Call, machine: Machine
) -> relax.Expr:
    """Packed weights and sums in registers for float32 and constant weights; plainly all else.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a call of the recurrent operator.
    machine : Machine
        Its vector registers and threads decide how it is cut.

    Returns
    -------
    relax.Expr
        A call of the tensor program, whose weights are packed for this machine.
    """
    recurrence = Recurrence.of(call)
    if recurrence.dtype != "float32" or not isinstance(call.args[1], tvm.ir.GenericConst):
        return legalize_plainly(builder, call)
    return legalize(builder, call, blocking(recurrence, machine))


def blocking(recurrence: Recurrence, machine: Machine) -> Blocking:
    """Rows and columns whose sums fill the registers, and tasks enough for the threads.

    Parameters
    ----------
    recurrence : Recurrence
        What is to be computed.
    machine : Machine
        What it runs on.

    Returns
    -------
    Blocking
        Steps are shared by all threads where one direction's weights outgrow a core's cache and
        there are few tasks.

    Examples
    --------
    >>> machine = Machine(vector_bytes=64, num_registers=32, num_threads=4)
    >>> one = Recurrence("lstm", "forward", 100, 8, 256, "float32", False)
    >>> blocking(one, machine)
    Blocking(columns=16, rows=2, packed=True, shared_steps=False)
    """
    one, directions = recurrence, len(recurrence.backwards)
    most_rows = max(1, machine.num_registers * 3 // 4 // one.gates)
    tasks = max(
        math.ceil(one.batch / most_rows),
        min(one.batch, math.ceil(machine.num_threads / directions)),
    )
    rows = math.ceil(one.batch / tasks)
    lanes = machine.lanes(one.dtype)
    columns = lanes * max(1, math.ceil(_FEWEST_SUMS / (one.gates * rows)))
    if columns > one.hidden:
        columns = one.hidden // lanes * lanes or one.hidden
    shared = (
        one.gates * one.hidden**2 * 4 > _SHARED_BYTES
        and 2 * tasks * directions <= machine.num_threads
    )
    return Blocking(columns, rows, packed=True, shared_steps=shared)
