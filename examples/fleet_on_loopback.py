"""A whole fleet on this machine, and searches on it: ``python examples/fleet_on_loopback.py``.

First TVM's RPC tracker with two servers, then a Ray cluster of two nodes; each command is printed
as you would type it on machines of your own. Everything that is started is ended again. It needs
``pip install 'collage-tvm[cpu,ray,rpc]'``.
"""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import psutil

from collage.cost.engines.rpc.tracker import Tracker

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
classifier (float[8, 64] features) => (float[8, 10] scores) {
    hidden = MatMul(features, weight)
    active = Relu(hidden)
    scores = MatMul(active, head)
}
"""
START_SEC = 120.0
HEAD, NODE = "127.0.0.2", "127.0.0.3"
"""Ray replaces 127.0.0.1 by the address that this machine has in its network."""


def main(folder: Path, kinds: list[str]) -> None:
    model = write_model(folder)
    fleets = {"rpc": rpc_fleet, "ray": ray_fleet}
    for kind in kinds:
        with fleets[kind]() as (workers, environment):
            collage("workers", workers, "--target", "llvm", environment=environment)
            collage(
                *("optimize", str(model), "-t", "llvm", "-t", "openblas", "--workers", workers),
                *("--time-budget", "60", "--log", str(folder / f"{kind}.jsonl")),
                *("-o", str(folder / f"{kind}.bundle")),
                environment=environment,
            )
        print(f"the {kind} fleet is gone\n", flush=True)


def write_model(folder: Path) -> Path:
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(MODEL)
    for name, shape in {"weight": (64, 128), "head": (128, 10)}.items():
        array = random.standard_normal(shape, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    path = folder / "classifier.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@contextmanager
def rpc_fleet() -> Iterator[tuple[str, Mapping[str, str]]]:
    """A tracker and two servers, which have the key "board"; all of them on loopback."""
    python = [sys.executable, "-m"]
    port = free_port()
    tracker = f"127.0.0.1:{port}"
    with ExitStack() as stack:
        program = [*python, "tvm.exec.rpc_tracker", "--host=127.0.0.1", *ports(port)]
        stack.enter_context(running(program, there=lambda _: is_open("127.0.0.1", port)))
        servers = Tracker("127.0.0.1", port)
        program = [*python, "tvm.exec.rpc_server", "--host=127.0.0.1", f"--tracker={tracker}"]
        for count in (1, 2):
            command = [*program, "--key=board", *ports(free_port())]
            is_there = partial(has_servers, servers, count)
            stack.enter_context(running(command, there=is_there))
        yield f"rpc://{tracker}?key=board", {}


@contextmanager
def ray_fleet() -> Iterator[tuple[str, Mapping[str, str]]]:
    """A head and a node. Ray listens on all interfaces: who has no token is turned away."""
    port = free_port()
    environment = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_ADDRESS": f"{HEAD}:{port}",
    }
    ray = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--num-gpus=0"]
    # Below it are sockets, whose paths may have a hundred characters.
    with ExitStack() as stack:
        scratch = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)
        )
        head = ["--head", f"--node-ip-address={HEAD}", f"--port={port}", f"--temp-dir={scratch}"]
        quiet = ["--include-dashboard=false", "--disable-usage-stats"]
        node = [f"--address={HEAD}:{port}", f"--node-ip-address={NODE}"]
        for arguments in ([*head, *quiet, "--num-cpus=2"], [*node, "--num-cpus=2"]):
            stack.enter_context(running([*ray, *arguments], environment, there=has_started))
        yield "ray", environment


def collage(*arguments: str, environment: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "collage", *arguments]
    show(["collage", *arguments])
    subprocess.run(command, env={**os.environ, **environment}, check=True)


@contextmanager
def running(
    command: list[str],
    environment: Mapping[str, str] | None = None,
    *,
    there: Callable[[list[str]], bool],
) -> Iterator[None]:
    """A program in the background, from when it is there until the context ends.

    ``there`` is asked that, and given the lines that the program has printed.
    """
    show(command)
    process = subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: list[str] = []
    # A pipe that nobody reads is full one day.
    threading.Thread(target=lambda: lines.extend(process.stdout or ()), daemon=True).start()
    end = time.monotonic() + START_SEC
    try:
        while not there(lines):
            if time.monotonic() > end or process.poll() is not None:
                raise SystemExit(f"it did not start\n{''.join(lines)}")
            time.sleep(0.1)
        yield
    finally:
        end_tree(process)


def end_tree(process: subprocess.Popen[str]) -> None:
    """End a program and all that it started."""
    tree = [psutil.Process(process.pid)] if process.poll() is None else []
    tree += tree[0].children(recursive=True) if tree else []
    for one in tree:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(tree, timeout=10)


def has_servers(tracker: Tracker, count: int, _: list[str]) -> bool:
    return len(tracker.summary("board").servers) == count


def has_started(lines: list[str]) -> bool:
    return any("Ray runtime started" in line for line in lines)


def show(command: list[str]) -> None:
    name = Path(command[0]).name
    print("$", shlex.join([name if len(command) > 1 else command[0], *command[1:]]), flush=True)


def ports(first: int) -> list[str]:
    return [f"--port={first}", f"--port-end={first + 1}"]


def is_open(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "out/fleet")
    place.mkdir(parents=True, exist_ok=True)
    main(place, sys.argv[2:] or ["rpc", "ray"])
