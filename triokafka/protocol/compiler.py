"""Makes codecs and constructors from declarations, on first use, and explains their failures.

A generated function is an ordinary one: its source is registered with ``linecache``, so tracebacks, debuggers and
``triokafka protocol show`` print it. If two threads generate the same function, both results are equal and one is kept.
The functions check every value but do not record positions; when one fails, the failed line identifies the field, and
the function's local ``p`` the byte.
"""

from __future__ import annotations

import linecache
import math
import struct
from types import FrameType
from typing import Any, Final, NoReturn

from triokafka.errors import KafkaError, ProtocolError, UnencodableValueError, UnsupportedVersionError
from triokafka.protocol.codec_runtime import Malformed, NotInVersion
from triokafka.protocol.emit_decoder import DecoderWriter
from triokafka.protocol.emit_encoder import EncoderWriter
from triokafka.protocol.primitives import RecordsType
from triokafka.protocol.source import Origin, SourceWriter

DECODE_FAILURES: Final = (Malformed, struct.error, IndexError, ValueError, OverflowError)
"""Everything that a generated decoder raises on wrong input."""
ENCODE_FAILURES: Final = (*DECODE_FAILURES, NotInVersion, AttributeError, TypeError)
"""Everything that a generated encoder raises on a value that its field cannot hold."""

_UNSET: Final[Any] = object()
_origins: dict[str, list[Origin]] = {}


def make_constructor(cls: Any) -> Any:
    """The ``__init__`` of a structure: keyword arguments, each with a default."""
    names: dict[str, Any] = {"UNSET": _UNSET}
    parameters = []
    body = []
    for f in cls.__fields__:
        names[f"default_{f.name}"] = f.default() if f.default_is_shared else f.default
        if f.default_is_shared:
            parameters.append(f"{f.name}=default_{f.name}")
            body.append(f"    self.{f.name} = {f.name}")
        else:
            fresh = "[]" if f.is_array else f"default_{f.name}()"
            parameters.append(f"{f.name}=UNSET")
            body.append(f"    self.{f.name} = {fresh} if {f.name} is UNSET else {f.name}")
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    source = "\n".join([f"def __init__({signature}):", *body, "    self._unknown_tags = None"]) + "\n"
    _run(source, f"<triokafka {cls.__module__}.{cls.__qualname__}()>", names)
    return names["__init__"]


def make_decoder(cls: Any, version: int, *, view: bool = False, prefix: bool = False) -> Any:
    """The decoder of one version; kept by the class.

    Its input is bytes, or a memoryview with ``view``; ``prefix`` leaves bytes after the message alone.
    """
    writer = DecoderWriter(view=view, prefix=prefix)
    writer.message(cls.construct(version), cls.__name__)
    kind = "view decoder" if view else "prefix decoder" if prefix else "decoder"
    decoder = _finish(writer, f"<triokafka {cls.__module__}.{cls.__name__} v{version} {kind}>", "decode")
    kept = cls._view_decoders if view else cls._prefix_decoders if prefix else cls._decoders
    return kept.setdefault(version, decoder)


def decode_carefully(
    cls: Any, version: int, buffer: Any, offset: int, *, prefix: bool = False, room: list[int] | None = None
) -> Any:
    """Decode a message with text that is not UTF-8, or within a memory limit.

    ``room[0]`` is the limit, from which the decoder subtracts. Text gets replacement characters, as in Java. The usual
    decoders do neither, so that good input costs nothing extra.
    """
    view = type(buffer) is not bytes
    kept = cls._careful_decoders
    decoder = kept.get((version, view, prefix))
    if decoder is None:
        writer = DecoderWriter(view=view, prefix=prefix, careful=True)
        writer.message(cls.construct(version), cls.__name__)
        filename = f"<triokafka {cls.__module__}.{cls.__name__} v{version} {view=} {prefix=} careful decoder>"
        decoder = kept.setdefault((version, view, prefix), _finish(writer, filename, "decode"))
    return decoder(buffer, offset, [math.inf] if room is None else room)


def make_encoder(cls: Any, version: int) -> Any:
    """The encoder of one version; kept by the class."""
    writer = EncoderWriter()
    writer.message(cls.construct(version), cls.__name__)
    encoder = _finish(writer, f"<triokafka {cls.__module__}.{cls.__name__} v{version} encoder>", "encode")
    return cls._encoders.setdefault(version, encoder)


def make_values_decoder(cls: Any, version: int) -> Any:
    """The decoder of one version that returns a tuple of the fields and makes no object; kept by the class."""

    def decode_tagged(data: bytes, position: int) -> tuple[Any, ...]:
        decoder = cls._decoders.get(version) or make_decoder(cls, version)
        made = decoder(data, position)
        return tuple(getattr(made, f.name) for f in cls.__fields__)

    writer = DecoderWriter()
    writer.names["decode_tagged"] = decode_tagged
    writer.values(cls.construct(version), cls.__name__)
    decoder = _finish(writer, f"<triokafka {cls.__module__}.{cls.__name__} v{version} values decoder>", "decode")
    return cls._values_decoders.setdefault(version, decoder)


def make_values_encoder(cls: Any, version: int) -> Any:
    """The encoder of one version that takes a tuple of the fields; kept by the class."""
    writer = EncoderWriter()
    writer.values(cls.construct(version), cls.__name__)
    encoder = _finish(writer, f"<triokafka {cls.__module__}.{cls.__name__} v{version} values encoder>", "encode")
    return cls._values_encoders.setdefault(version, encoder)


def source_of(cls: Any, version: int) -> str:
    """Return the generated source of one version, decoder and encoder."""
    decoder = DecoderWriter()
    decoder.message(cls.construct(version), cls.__name__)
    encoder = EncoderWriter()
    encoder.message(cls.construct(version), cls.__name__)
    return f"{decoder.text()}\n\n{encoder.text()}"


def carries_records(cls: Any) -> bool:
    """Whether the message has a field of record batches, which is then sliced from the input and not copied."""
    if cls._carries_records is None:
        cls._carries_records = _has_records(cls)
    return bool(cls._carries_records)


def _has_records(cls: Any) -> bool:
    return any(isinstance(f.type, RecordsType) or (f.struct and _has_records(f.struct)) for f in cls.__fields__)


def _finish(writer: SourceWriter, filename: str, function: str) -> Any:
    _run(writer.text(), filename, writer.names)
    _origins[filename] = writer.origins
    return writer.names[function]


def _run(source: str, filename: str, names: dict[str, Any]) -> None:
    exec(compile(source, filename, "exec"), names)  # the code is made here, from declarations only
    # Without a modification time linecache never drops the entry.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)


def _where(error: BaseException) -> tuple[FrameType | None, Origin]:
    """The innermost generated frame of a failure, and the field that its line stands for."""
    found: tuple[FrameType | None, Origin] = (None, Origin("", []))
    trace = error.__traceback__
    while trace is not None:
        origins = _origins.get(trace.tb_frame.f_code.co_filename)
        if origins is not None:
            found = (trace.tb_frame, origins[trace.tb_lineno - 1])
        trace = trace.tb_next
    return found


def raise_decode_error(cls: Any, error: Exception) -> NoReturn:
    """Raise `ProtocolError` with the reason, the path of the field and the offset, for a decoder that failed."""
    _raise_without_context(_explain_decode(cls, error))


def raise_encode_error(cls: Any, version: int, error: Exception) -> NoReturn:
    """Raise `ProtocolError` or `UnsupportedVersionError` with the field and the reason, for an encoder that failed."""
    _raise_without_context(_explain_encode(cls, version, error))


def _raise_without_context(failure: KafkaError) -> NoReturn:
    # The failure that it explains refers to frames of the codec, and so would keep the input alive.
    try:
        raise failure
    finally:
        failure.__context__ = None
        del failure  # this frame is in its traceback


def _explain_decode(cls: Any, error: Exception) -> KafkaError:
    frame, (path, parts) = _where(error)
    offset = frame.f_locals.get("p", -1) if frame is not None else -1
    if isinstance(error, Malformed):
        text = str(error)
    elif isinstance(error, (struct.error, IndexError)) and frame is not None:
        end = len(frame.f_locals["d"])
        for part, size in parts:
            if offset + size > end:
                path = part
                break
            offset += size
        text = "the data ends early"
    else:
        text = str(error)
    return ProtocolError(text, path=path or cls.__name__, offset=offset)


def _explain_encode(cls: Any, version: int, error: Exception) -> KafkaError:
    frame, (path, parts) = _where(error)
    if isinstance(error, NotInVersion):
        return UnsupportedVersionError(f"{error} is set, but version {version} of {cls.__name__} has no such field")
    if isinstance(error, struct.error) and frame is not None:
        for part, (code, expression) in parts:
            try:
                struct.pack(f">{code}", *([] if code == "x" else [eval(expression, frame.f_globals, frame.f_locals)]))
            except (struct.error, AttributeError, TypeError) as inner:
                return UnencodableValueError(f"cannot be encoded in version {version}: {inner}", path=part)
    if isinstance(error, (AttributeError, TypeError)) and "NoneType" in str(error):
        declared = _field_at(cls, path)
        if declared is not None and declared.nullable.max >= declared.nullable.min:
            return UnsupportedVersionError(f"{path} is null, which version {version} of {cls.__name__} does not allow")
        return UnencodableValueError("null where it is not allowed", path=path)
    return UnencodableValueError(f"cannot be encoded in version {version}: {error}", path=path or cls.__name__)


def _field_at(cls: Any, path: str) -> Any:
    """The declared field at a dotted path, or None."""
    found = None
    for name in path.split(".")[1:]:
        found = next((f for f in cls.__fields__ if f.name == name), None)
        if found is None or found.struct is None:
            break
        cls = found.struct
    return found
