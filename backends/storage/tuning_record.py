"""What a log holds besides measurements: findings, and the bytes that some of them refer to."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

KIND = "tuning"
"""``kind`` of a log's lines that are findings."""

BLOB_KIND = "blob"
"""``kind`` of a log's lines that hold bytes."""

_ZLIB_LEVEL = 6
_WORTH_COMPRESSING = 0.95
"""What must be left of the bytes at most; weights, for example, hardly shrink."""


@dataclass(frozen=True)
class TuningRecord:
    """One finding.

    Attributes
    ----------
    backend : str
        Whose it is.
    schema : int
        Version of what that backend writes.
    key : mapping
        Everything it depends on that is known without the device: problem, versions, options.
    device : mapping
        What it was found on; of a GPU at least ``name`` and ``compute_capability`` (for example
        90).
    result : mapping
        What was found, in the backend's terms. Large parts stand as references to blobs.

    Examples
    --------
    >>> gpu = {"name": "NVIDIA H200", "compute_capability": 90}
    >>> record = TuningRecord("mine", 1, {"rows": 64}, gpu, {"algorithm": 3})
    >>> TuningRecord.from_value(json.loads(record.to_json())) == record
    True
    """

    backend: str
    schema: int
    key: Mapping[str, Any]
    device: Mapping[str, Any]
    result: Mapping[str, Any]

    def to_json(self) -> str:
        """One line of JSON, without its end."""
        value = {
            "kind": KIND,
            "backend": self.backend,
            "schema": self.schema,
            "key": self.key,
            "device": self.device,
            "result": self.result,
        }
        return json.dumps(value, allow_nan=False)

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> TuningRecord:
        """From a line's parsed JSON.

        Raises
        ------
        ValueError
            When a field is missing or of the wrong type; says which.
        """
        types = {"backend": str, "schema": int, "key": dict, "device": dict, "result": dict}
        for name, wanted in types.items():
            if not isinstance(value.get(name), wanted):
                raise ValueError(f"has no valid '{name}'")
        return cls(**{name: value[name] for name in types})

    @cached_property
    def question(self) -> str:
        """What it answers; see :func:`question_digest`."""
        return question_digest(self.backend, self.schema, self.key)

    @property
    def identity(self) -> str:
        """What it answers and for which device, as canonical text; the last of equals counts."""
        return json.dumps([self.question, self.device], sort_keys=True)

    def blob(self, name: str) -> BlobReference | None:
        """What a field of the result refers to; None where it is no reference."""
        value = self.result.get(name)
        if not isinstance(value, dict) or value.keys() != _REFERENCE_FIELDS:
            return None
        return BlobReference(**value)

    def blobs(self) -> Iterator[BlobReference]:
        """All that the result refers to."""
        return filter(None, map(self.blob, self.result))


def question_digest(backend: str, schema: int, key: Mapping[str, Any]) -> str:
    """SHA-256 of what a finding answers.

    Parameters
    ----------
    backend : str
        Whose finding it is.
    schema : int
        Version of what that backend writes.
    key : mapping
        All that the answer depends on; the order of its fields does not count.

    Returns
    -------
    str
        64 hexadecimal digits; the order of the key's entries does not matter.
    """
    text = json.dumps([backend, schema, key], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class BlobReference:
    """Bytes, by what they are.

    Attributes
    ----------
    sha256 : str
        Of the bytes, in hexadecimal digits.
    size : int
        How many bytes.
    in_log : bool
        Whether the log holds them; the machine's cache folder holds all.

    Examples
    --------
    >>> plan = BlobReference.of(b"a serialized plan")
    >>> plan.size, plan.is_of(b"a serialized plan"), plan.is_of(b"another one")
    (17, True, False)
    """

    sha256: str
    size: int
    in_log: bool = True

    @classmethod
    def of(cls, data: bytes, *, in_log: bool = True) -> BlobReference:
        """The reference to some bytes.

        Parameters
        ----------
        data : bytes
            What it refers to.
        in_log : bool
            See the attribute.

        Returns
        -------
        BlobReference
            By their SHA-256 and their number.
        """
        return cls(hashlib.sha256(data).hexdigest(), len(data), in_log)

    def to_value(self) -> dict[str, Any]:
        """As it stands in a finding's result."""
        return asdict(self)

    def is_of(self, data: bytes) -> bool:
        """Whether it refers to these bytes."""
        return hashlib.sha256(data).hexdigest() == self.sha256


_REFERENCE_FIELDS = set(BlobReference.__dataclass_fields__)


def blob_line(data: bytes) -> str:
    """A log's line that holds bytes, compressed where that pays; without its end."""
    compressed = zlib.compress(data, _ZLIB_LEVEL)
    pays = len(compressed) < _WORTH_COMPRESSING * len(data)
    value = {
        "kind": BLOB_KIND,
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
        "encoding": "zlib+base64" if pays else "base64",
        "data": base64.b64encode(compressed if pays else data).decode(),
    }
    return json.dumps(value)


def read_blob(value: Mapping[str, Any]) -> bytes:
    """The bytes of a blob's line.

    Raises
    ------
    ValueError
        When it is of another encoding, or the bytes are not those that it names.
    """
    if value.get("encoding") not in ("base64", "zlib+base64"):
        raise ValueError("has no valid 'encoding'")
    try:
        data = base64.b64decode(value["data"], validate=True)
        data = zlib.decompress(data) if value["encoding"] == "zlib+base64" else data
    except (KeyError, TypeError, binascii.Error, zlib.error) as err:
        raise ValueError("has no valid 'data'") from err
    if hashlib.sha256(data).hexdigest() != value.get("sha256"):
        raise ValueError("holds other bytes than its 'sha256' says")
    return data


def read_blob_reference(value: Mapping[str, Any]) -> BlobReference:
    """Which bytes a blob's line says it holds, without reading them.

    Raises
    ------
    ValueError
        When it does not say so.
    """
    digest, size = value.get("sha256"), value.get("size")
    if not isinstance(digest, str) or len(digest) != hashlib.sha256().digest_size * 2:
        raise ValueError("has no valid 'sha256'")
    if not isinstance(size, int) or isinstance(size, bool):
        raise ValueError("has no valid 'size'")
    return BlobReference(digest, size)
