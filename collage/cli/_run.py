"""``collage run``: one call of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collage.backends.contract.errors import InputError, OutputError
from collage.cli.terminal import err, out
from collage.cli.terminal.options import BundleFolder, Debug, example
from collage.cli.terminal.samples import UNREADABLE

if TYPE_CHECKING:
    import numpy as np

    from collage.bundle import BundleFunction


def add_to(app: typer.Typer) -> None:
    app.command(
        "run",
        epilog=example(
            "collage run resnet50.bundle --input image.npy --output scores.npy",
            "collage run bert.bundle --input ids=ids.npy --input mask=mask.npy --output results/",
            "collage run decoder.bundle --function prefill --input tokens=tokens.npy",
        ),
    )(_run)


def _run(
    bundle: BundleFolder,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="[NAME=]FILE.npy",
            help="An input, by name or in order; random ones when none is given.",
        ),
    ] = None,
    function: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which function; by default main, or the first."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.npy|FOLDER",
            help="Where outputs go: a file for one, a folder for several.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of random inputs.")] = 0,
    debug: Debug = False,
) -> None:
    """Run a bundle once, on arrays from .npy files or on random ones."""
    import numpy as np

    from collage.bundle import load

    whole = load(bundle)
    loaded = whole[function or whole.main]
    if inputs:
        positional, named = read_inputs(inputs, [info.name for info in loaded.inputs])
        given = {info.name for info in loaded.inputs[: len(positional)]}
        begin = {name: array for name, array in loaded.new_state().items() if name not in given}
        named = {**begin, **named}
    else:
        err().print(f"no --input given: random inputs, seed {seed}", highlight=False)
        positional, named = loaded.random_inputs(seed), {}
    files = _output_files(loaded, output)
    arrays = loaded.compute(loaded.in_order(positional, named))
    for info, array in zip(loaded.outputs, arrays, strict=True):
        out().print(_describe(info.name, np.asarray(array)), highlight=False, markup=False)
    for file, array in zip(files, arrays, strict=False):
        try:
            np.save(file, np.asarray(array), allow_pickle=False)
        except OSError as error:
            raise OutputError(f"cannot write '{file}': {error.strerror}", value=file) from error
        out().print(f"wrote {file}", highlight=False, markup=False)


def read_inputs(
    texts: list[str], names: list[str]
) -> tuple[list[np.ndarray[Any, Any]], dict[str, np.ndarray[Any, Any]]]:
    """Load ``FILE.npy`` and ``NAME=FILE.npy``.

    A text with ``=`` is the latter where it begins with an input's name, and where there is no file
    that is called like the whole of it.

    Parameters
    ----------
    texts : list of str
        As the command line has them.
    names : list of str
        The names of the bundle's inputs.

    Returns
    -------
    tuple[list[np.ndarray[Any, Any]], dict[str, np.ndarray[Any, Any]]]
        Those by position, in their order, and those by name.

    Raises
    ------
    InputError
        When a file is missing, is no .npy file of plain numbers or holds several arrays, and when
        an input is given twice.
    """
    import numpy as np

    positional, named = [], {}
    for text in texts:
        name, equals, file = text.partition("=")
        by_name = bool(equals) and (name in names or not Path(text).exists())
        path = Path(file if by_name else text)
        try:
            array = np.load(path, allow_pickle=False)
        except UNREADABLE as error:
            reason = getattr(error, "strerror", None) or "it is no .npy file of plain numbers"
            raise InputError(f"cannot read input '{path}': {reason}", value=text) from error
        if not isinstance(array, np.ndarray):
            raise InputError(f"cannot read input '{path}': it holds several arrays", value=text)
        if not by_name:
            positional.append(array)
        elif name in named:
            raise InputError(f"input '{name}' is given twice", value=name)
        else:
            named[name] = array
    return positional, named


def _output_files(function: BundleFunction, output: Path | None) -> list[Path]:
    """Where each output goes; made sure of before the model runs."""
    if output is None:
        return []
    names = [info.name for info in function.outputs]
    single = output.suffix == ".npy"
    if single and len(names) > 1:
        raise OutputError(
            f"the model has {len(names)} outputs: give a folder, not '{output}'", value=output
        )
    try:
        if single:
            output.open("ab").close()
            return [output]
        output.mkdir(parents=True, exist_ok=True)
        files = [output / f"{i}-{_file_name(name)}.npy" for i, name in enumerate(names)]
        for file in files:
            file.open("ab").close()
    except OSError as error:
        raise OutputError(f"cannot write '{output}': {error.strerror}", value=output) from error
    return files


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)


def _describe(name: str, array: np.ndarray[Any, Any]) -> str:
    shape = "x".join(map(str, array.shape)) or "scalar"
    text = f"{name}: {array.dtype} {shape}"
    if array.size and array.dtype.kind in "fiu":
        text += f", from {array.min():.6g} to {array.max():.6g}, mean {array.mean():.6g}"
    return text
