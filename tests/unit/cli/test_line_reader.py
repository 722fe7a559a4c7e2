"""From lines to records."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triokafka.cli.client_properties import pair, parsed
from triokafka.cli.configs import split_configs
from triokafka.cli.line_reader import Item, LineReader, Lines, make_reader, nulling_reader

HEADERS = {"parse.headers": "true", "parse.key": "true"}


@given(st.lists(st.text("ab\n").map(str.encode)), st.integers(0, 5), st.sampled_from([b"\n", b"ab", b"aab", b"a\na"]))
def test_lines_are_cut_alike_however_the_input_comes_in(pieces: list[bytes], longest: int, delimiter: bytes) -> None:
    lines = Lines(longest, delimiter)
    found = [line for piece in pieces for line in lines.feed(piece)]
    whole = [line if len(line) <= longest else len(line) for line in b"".join(pieces).split(delimiter)]
    assert [*found, lines.end()] == whole


def test_of_a_line_that_is_too_long_nothing_is_kept() -> None:
    """Input without an end of a line must not take all memory."""
    lines = Lines(longest=100)
    for _ in range(50):
        assert lines.feed(b"x" * 60) == []
    assert sum(map(len, lines._begun)) <= 100
    assert lines.feed(b"\nnext\n") == [3_000, b"next"]


def test_whole_line_is_the_value_by_default() -> None:
    assert LineReader({})(b"a\tb", 1) == Item(None, b"a\tb")
    assert LineReader({})(b"", 1) == Item(None, b"")


@given(st.binary().filter(lambda key: b":" not in key), st.binary())
def test_key_ends_at_the_first_separator(key: bytes, value: bytes) -> None:
    reader = LineReader({"parse.key": "true", "key.separator": "::"})
    assert reader(key + b"::" + value, 1) == Item(key, value)


def test_text_that_means_null_may_be_empty() -> None:
    reader = nulling_reader(LineReader({"parse.key": "true", "parse.headers": "true"}), "")
    assert reader(b"a:,b:1\t\t", 1) == Item(None, None, (("a", None), ("b", b"1")))
    assert nulling_reader(LineReader({}), "NULL")(b"NULL", 1) == Item(None, None)
    assert nulling_reader(LineReader({}), None)(b"", 1) == Item(None, b"")


def test_separator_at_the_end_is_an_empty_value() -> None:
    assert LineReader({"parse.key": "true"})(b"k\t", 1) == Item(b"k", b"")
    assert LineReader({"parse.key": "true"})(b"\tv", 1) == Item(b"", b"v")


def test_headers_stand_first_and_may_be_empty() -> None:
    reader = LineReader({**HEADERS, "null.marker": "-"})
    assert reader(b"a:1,b:,c:-\tk\tv", 1) == Item(b"k", b"v", (("a", b"1"), ("b", b""), ("c", None)))
    assert reader(b"\tk\tv", 1) == Item(b"k", b"v")
    assert reader(b"-\t-\t-", 1) == Item(None, None)
    assert reader(b"a:1,,\tk\tv", 1) == Item(b"k", b"v", (("a", b"1"),))
    other = LineReader({**HEADERS, "headers.delimiter": "|", "headers.separator": ";", "headers.key.separator": "="})
    assert other(b"a=x,y;b=2|k\tv", 1) == Item(b"k", b"v", (("a", b"x,y"), ("b", b"2")))


@pytest.mark.parametrize(
    ("line", "words", "lenient"),
    [
        (b"no headers", "line 7: no end of headers", Item(None, b"no headers")),
        (b"a\tk\tv", "line 7: no separator of a header's name and value", Item(b"k", b"v", (("a", None),))),
        (b"a:1\tno key", "line 7: no key separator", Item(None, b"no key", (("a", b"1"),))),
        (b"\xff:1\tk\tv", "line 7: the name of a header is not UTF-8", Item(b"k", b"v", (("\ufffd", b"1"),))),
    ],
)
def test_unreadable_line_is_named_or_read_leniently(line: bytes, words: str, lenient: Item) -> None:
    with pytest.raises(ValueError, match=words):
        LineReader(HEADERS)(line, 7)
    assert LineReader({**HEADERS, "ignore.error": "true"})(line, 7) == lenient


def test_null_marker_may_be_empty_and_is_no_name_of_a_header() -> None:
    assert LineReader({"null.marker": ""})(b"", 1) == Item(None, None)
    assert LineReader({"parse.key": "true", "null.marker": ""})(b"\tv", 1) == Item(None, b"v")
    with pytest.raises(ValueError, match="line 1: the name of a header is the null marker"):
        LineReader({**HEADERS, "null.marker": "-"})(b"-:1\tk\tv", 1)


@pytest.mark.parametrize(
    "properties",
    [
        {"parse.keys": "true"},
        {"parse.key": "yes"},
        {"key.separator": ""},
        {"parse.headers": "true", "headers.separator": ":"},
        {"null.marker": ","},
    ],
)
def test_wrong_properties_are_refused_before_anything_is_read(properties: dict[str, str]) -> None:
    with pytest.raises(click.UsageError):
        make_reader(None, properties)


def test_reader_of_ones_own_is_imported() -> None:
    reader = make_reader(f"{__name__}:Upper", {"x": "y"})
    assert reader(b"abc", 1) == Item(b"y", b"ABC")
    assert isinstance(make_reader("kafka.tools.ConsoleProducer$LineMessageReader".replace("$", "."), {}), LineReader)
    for wrong in ("no_colon", "no.such.module:X", f"{__name__}:NoSuchClass"):
        with pytest.raises(click.UsageError):
            make_reader(wrong, {})


class Upper:
    """Shouts."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._key = properties["x"].encode()

    def __call__(self, line: bytes, number: int) -> Item:
        return Item(self._key, line.upper())


def test_pairs_may_have_equal_signs_and_brackets() -> None:
    assert pair("-X", "a=b=c") == ("a", "b=c")
    with pytest.raises(click.UsageError, match="takes NAME=VALUE"):
        pair("-X", "=b")
    assert split_configs("a=1,b=[x,y],c=") == {"a": "1", "b": "x,y", "c": ""}
    assert split_configs("match=[client_id=a.*]") == {"match": "client_id=a.*"}
    with pytest.raises(click.UsageError, match="unbalanced brackets"):
        split_configs("a=[1,2")


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("-1", -1), ("0.5", 0.5), ("TRUE", True), ("none", None), ("all", "all"), ("", "")]
)
def test_values_of_options_are_python_objects(text: str, value: object) -> None:
    assert parsed(text) == value
