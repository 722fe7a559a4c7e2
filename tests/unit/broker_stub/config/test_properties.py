from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triokafka.broker_stub.config import format_properties, parse_properties
from triokafka.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1\nb = 2\nc:3\nd 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# comment\n! comment\n\n  a=1", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x\\\n   y\\\n z\nb=1", {"a": "xyz", "b": "1"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("a\\=b=1=2", {"a=b": "1=2"}),
        ("a=\\u0041\\t", {"a": "A\t"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a=1\r\nb=2\r\n", {"a": "1", "b": "2"}),
        ("a= x # no comment", {"a": "x # no comment"}),
        ("a=\\", {"a": ""}),
        ("a=1\rb=2", {"a": "1", "b": "2"}),
        ("a=x\x85y\u2028z\x0b\n\fb=2", {"a": "x\x85y\u2028z\x0b", "b": "2"}),
        ("# a comment is not continued \\\nb=2", {"b": "2"}),
        ("a=\\\n# x", {"a": "# x"}),
    ],
)
def test_files_are_read_as_java_reads_them(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text) == values


def test_malformed_escape_names_file_and_line() -> None:
    with pytest.raises(ConfigurationError, match="server, line 2"):
        parse_properties("a=1\nb=\\u00x1", source="server")


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1),
        st.text(st.characters(exclude_categories=["Cs"])),
    )
)
def test_written_properties_are_read_back(values: dict[str, str]) -> None:
    assert parse_properties(format_properties(values, comment="x")) == values
