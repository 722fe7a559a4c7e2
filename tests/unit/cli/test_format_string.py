"""kcat's format strings, for printing and for reading."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triokafka import ConsumerRecord
from triokafka.cli.format_string import FormatFormatter, FormatReader, encoding_reader
from triokafka.cli.line_reader import Item
from triokafka.cli.record_codecs import RegistryOptions, decoder, encoder


def _record(key: bytes | None = b"k", value: bytes | None = b"value") -> ConsumerRecord:
    headers = (("a", b"1"), ("b", None))
    return ConsumerRecord("orders", 3, 42, timestamp=1_700_000_000_000, key=key, value=value, headers=headers)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"Topic %t [%p] at offset %o: key %k: %s\n", b"Topic orders [3] at offset 42: key k: value\n"),
        (r"%T %h", b"1700000000000 a=1,b="),
        (r"%K %S|", b"1 5|"),
        (r"%R%s", b"\0\0\0\x05value"),
        (r"100%% \x41\t\\%s", b"100% A\t\\value"),
    ],
)
def test_tokens_and_escapes_are_those_of_kcat(text: str, printed: bytes) -> None:
    assert FormatFormatter(text)(_record()) == printed


def test_null_has_length_minus_one_and_prints_nothing() -> None:
    assert FormatFormatter("%k|%K|%s|%S")(_record(key=None, value=None)) == b"|-1||-1"
    assert FormatFormatter("%R")(_record(value=None)) == b"\xff\xff\xff\xff"


@pytest.mark.parametrize("text", ["%q", r"\q", "", "%"])
def test_unknown_tokens_are_usage_errors(text: str) -> None:
    with pytest.raises(click.UsageError, match="--format"):
        FormatFormatter(text)


def test_lines_are_read_by_the_same_format() -> None:
    read = FormatReader(r"%t;%p;%T;%h;%K;%k;%s\n", "orders")
    assert read(b"orders;3;17;a=1,b=;1;k;a;value", 1) == Item(b"k", b"a;value", (("a", b"1"), ("b", b"")), 3, 17)
    assert read(b"orders;3;17;;-1;;v", 1) == Item(None, b"v", (), 3, 17)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("%k:%s", b"no separator", "no ':' where the format has it"),
        ("%p %s", b"x y", "'x' is not a partition"),
        ("%p %s", b"99999999999 y", "'99999999999' is not a partition"),
        ("%T %s", b"9" * 5_000 + b" y", "is not a timestamp"),
        ("%h|%s", b"\xff=1|y", "is not UTF-8"),
        ("%t %s", b"payments y", "it is for topic 'payments'"),
        ("%h|%s", b"plain|y", "'plain' is not NAME=VALUE"),
        ("[%s]", b"[x] and more", "follows the end"),
        ("[%s]", b"x]", "no '[' where"),
    ],
)
def test_lines_that_do_not_match_name_the_line_and_the_problem(text: str, line: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=r"line 7: ") as raised:
        FormatReader(text, "orders")(line, 7)
    assert problem in str(raised.value)


@pytest.mark.parametrize("text", ["%k%s", "%s %s", "%R %s", r"%k\n%s", "%t", "text"])
def test_formats_that_cannot_be_read_are_usage_errors(text: str) -> None:
    with pytest.raises(click.UsageError, match="--format"):
        FormatReader(text, "orders")


@given(key=st.binary().filter(lambda b: b"\t" not in b and b"\n" not in b), value=st.binary())
def test_printed_line_is_read_back(key: bytes, value: bytes) -> None:
    line = FormatFormatter(r"%p\t%k\t%s")(_record(key=key, value=value))
    assert FormatReader(r"%p\t%k\t%s", "orders")(line, 1) == Item(key, value, (), 3)


NONE = RegistryOptions(None)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("hex", b"\x00\xff", "00ff"),
        ("base64", b"\x00\xff", "AP8="),
        ("pack:>qs", b"\0\0\0\0\0\0\0\x07abc", "7 abc"),
        ("pack:<hB c$", b"\xff\xff\x05x", "-1 5 x"),
        ("org.apache.kafka.common.serialization.LongDeserializer", b"\0\0\0\0\0\0\0\x07", "7"),
        ("org.apache.kafka.common.serialization.IntegerSerializer", b"\0\0\0\x07", "7"),
    ],
)
def test_formats_decode_and_encode(name: str, data: bytes, text: str) -> None:
    decode, encode = decoder("-x", name, NONE), encoder("-x", name, NONE, topic="t", is_key=False)
    assert decode is not None and encode is not None
    assert decode(data) == text
    assert encode(text.encode()) == data


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("pack:>q", b"abc"),
        ("pack:>b$", b"ab"),
        ("hex", b"xyz"),
        ("base64", b"?"),
        ("org.apache.kafka.common.serialization.DoubleDeserializer", b"abc"),
    ],
)
def test_unreadable_bytes_are_errors(name: str, data: bytes) -> None:
    convert = (
        decoder("-x", name, NONE)
        if name.startswith(("pack", "org"))
        else encoder("-x", name, NONE, topic="t", is_key=True)
    )
    assert convert is not None
    with pytest.raises(ValueError):
        convert(data)


@pytest.mark.parametrize("name", ["nonsense", "pack:", "pack:sq", "pack:z", "registry", "org.apache.kafka.common.X"])
def test_unknown_formats_are_usage_errors(name: str) -> None:
    with pytest.raises(click.UsageError, match="-x"):
        decoder("-x", name, NONE)
    with pytest.raises(click.UsageError, match="-x"):
        encoder("-x", name, NONE, topic="t", is_key=False)


def test_errors_of_encoded_lines_name_the_problem() -> None:
    read = encoding_reader(FormatReader("%k %s", "t"), None, encoder("-x", "hex", NONE, topic="t", is_key=False))
    assert read(b"k 00ff", 1) == Item(b"k", b"\0\xff")
    with pytest.raises(ValueError, match="line 2: the value cannot be encoded: it is not hexadecimal digits"):
        read(b"k zz", 2)
