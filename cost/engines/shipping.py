"""The files of a build as bytes, for machines that share no file system.

What arrives is data from somebody else: a plain archive of regular files and folders, whose names
and sizes are looked at before anything is written. Libraries that a build does not make but only
links to (oneDNN's, NVIDIA's) are not sent along: hundreds of megabytes for each candidate. They are
named by their place below the environment that packages are installed in, and must be there on the
other side, too.
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path, PurePosixPath

from collage.backends.contract.errors import MeasurementError, ProtocolError
from collage.cost.processes.protocol import Message, decode, encode
from collage.cost.processes.staging import move_requirements

_MOST_MEMBERS = 4096
_LABEL = ".shipment"
_LABEL_BYTES = 1 << 20
_BLOCK = 512
"""Of an archive: a header, and what the content is rounded up to."""


class _Link(Message, frozen=True):
    """A library of an installed package.

    Attributes
    ----------
    name : str
        Of the link in the folder.
    place : str
        Of the library below the environment.
    size : int
        What it must have on the other side, too.
    """

    name: str
    place: str
    size: int


class _Label(Message, frozen=True):
    """What a shipment says of itself.

    Attributes
    ----------
    environment : str
        The sender's.
    sizes : dict of str to int
        Of all files: an archive that was cut off reads like a smaller one.
    links : tuple of _Link
        Into the environment.
    """

    environment: str
    sizes: dict[str, int]
    links: tuple[_Link, ...]


def pack(folder: Path, limit_bytes: int, environment: Path = Path(sys.prefix)) -> bytes:
    """The files in a folder, for :func:`unpack` on another machine.

    Parameters
    ----------
    folder : Path
        Links in it to what lies outside of the environment are followed.
    limit_bytes : int
        What they may hold together.
    environment : Path, optional
        Where packages are installed.

    Returns
    -------
    bytes
        An archive in tar's format, not compressed.

    Raises
    ------
    MeasurementError
        When they hold more.

    Examples
    --------
    >>> _ = Path("built").mkdir(), Path("built/model.so").write_bytes(b"machine code")
    >>> data = pack(Path("built"), limit_bytes=1 << 20)
    >>> unpack(data, Path("arrived"), limit_bytes=1 << 20)
    >>> Path("arrived/model.so").read_bytes()
    b'machine code'
    """
    root, links, files = environment.resolve(), [], {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() and path.resolve().is_relative_to(root):
            target = path.resolve(strict=True)
            place = target.relative_to(root).as_posix()
            links.append(_Link(name, place, target.stat().st_size))
        elif path.is_file():
            files[name] = path
    sizes = {name: path.stat().st_size for name, path in files.items()}
    total = sum(sizes.values())
    if total > limit_bytes:
        raise MeasurementError(
            f"what was built takes {total >> 20} MiB, and at most {limit_bytes >> 20} are sent",
            value=total,
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, _LABEL, encode(_Label(str(root), sizes, tuple(links))))
        for name, path in files.items():
            _add(archive, name, path.read_bytes())
    return buffer.getvalue()


def unpack(
    data: bytes, folder: Path, limit_bytes: int, environment: Path = Path(sys.prefix)
) -> None:
    """Write the files of a shipment into a folder.

    Parameters
    ----------
    data : bytes
        From :func:`pack`, of whoever it may be.
    folder : Path
        Made when it is not there.
    limit_bytes : int
        What the files may hold together.
    environment : Path, optional
        Where packages are installed on this machine.

    Raises
    ------
    ProtocolError
        When it is no shipment, is too large, or would write anywhere else; nothing is written.
    MeasurementError
        When a library that is linked to is not installed here, or is another one.
    """
    if len(data) > limit_bytes + _LABEL_BYTES + 4 * _BLOCK * _MOST_MEMBERS:
        raise ProtocolError(f"a shipment of {len(data)} bytes is too large", value=len(data))
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            label, members = _checked(archive, len(data), limit_bytes)
            root = environment.resolve()
            links = {_inside(link.name): _installed(link, root) for link in label.links}
            _refuse_conflicts(list(members), list(links))
            folder.mkdir(parents=True, exist_ok=True)
            for name, member in members.items():
                _write(folder / name, archive, member)
    except (tarfile.TarError, ValueError, EOFError, OSError) as err:
        raise ProtocolError(f"a shipment cannot be unpacked: {err}") from err
    for name, target in links.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)
    move_requirements(folder, Path(label.environment), root)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _checked(
    archive: tarfile.TarFile, size: int, limit_bytes: int
) -> tuple[_Label, dict[PurePosixPath, tarfile.TarInfo]]:
    """The label and the files of an archive, in which nothing else may be."""
    label: _Label | None = None
    members: dict[PurePosixPath, tarfile.TarInfo] = {}
    total = 0
    for count, member in enumerate(archive):
        total += member.size
        if count > _MOST_MEMBERS or total > limit_bytes + _LABEL_BYTES:
            raise ProtocolError(f"a shipment holds more than {limit_bytes} bytes", value=total)
        if not member.isreg() or member.issparse():
            raise ProtocolError(
                f"'{member.name}' in a shipment is no plain file", value=member.name
            )
        if member.offset_data + member.size > size:
            raise ProtocolError(f"'{member.name}' in a shipment is cut off", value=member.name)
        if member.name == _LABEL:
            label = decode(_content(archive, member), _Label)
        else:
            members[_inside(member.name)] = member
    if label is None:
        raise ProtocolError("a shipment has no label")
    sizes = {str(name): member.size for name, member in members.items()}
    if sizes != label.sizes:
        raise ProtocolError("a shipment holds other files than its label says", value=sizes)
    if sum(sizes.values()) > limit_bytes:
        raise ProtocolError(f"a shipment holds more than {limit_bytes} bytes", value=sizes)
    return label, members


def _refuse_conflicts(files: list[PurePosixPath], links: list[PurePosixPath]) -> None:
    names = [*files, *links]
    folders = {parent for name in names for parent in name.parents}
    if len(set(names)) < len(names) or folders & set(names):
        raise ProtocolError("a shipment has two things of one name", value=[*map(str, names)])


def _inside(text: str) -> PurePosixPath:
    """A name that cannot lead out of the folder that it is put into."""
    name = PurePosixPath(text)
    if not name.parts or name.is_absolute() or ".." in name.parts or "\0" in text:
        raise ProtocolError(f"'{text}' in a shipment leads elsewhere", value=text)
    return name


def _installed(link: _Link, environment: Path) -> Path:
    path = environment / _inside(link.place)
    if not path.is_file():
        raise MeasurementError(
            f"'{link.place}', which a candidate is linked to, is not installed in '{environment}'",
            value=link.place,
        )
    if path.stat().st_size != link.size:
        raise MeasurementError(
            f"'{path}' is another version of what a candidate was linked to ({path.stat().st_size} "
            f"bytes and not {link.size})",
            value=link.place,
        )
    return path


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    return stream.read() if stream is not None else b""


def _write(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_content(archive, member))
