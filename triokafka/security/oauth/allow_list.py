"""Which addresses and files OAUTHBEARER may use: an allow-list, empty by default, as in Kafka 4.

In Kafka two system properties hold the lists. Here they are options, and two variables of the environment, which
overrule the options: with them an administrator limits what configurations from elsewhere can reach.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple

URLS_VARIABLE: Final = "TRIOKAFKA_SASL_OAUTHBEARER_ALLOWED_URLS"
FILES_VARIABLE: Final = "TRIOKAFKA_SASL_OAUTHBEARER_ALLOWED_FILES"


class AllowList(NamedTuple):
    """The URLs and the files that may be used, as exact texts, and the options that hold them."""

    urls: frozenset[str]
    files: frozenset[str]
    urls_option: str
    files_option: str

    def check_url(self, url: str, option: str) -> None:
        """Raise `ConfigurationError` unless ``url``, the value of ``option``, is on the list."""
        if url not in self.urls:
            raise ConfigurationError(
                f"{option}: the URL {url} is not allowed. Add it to {self.urls_option}, or to the environment variable"
                f" {URLS_VARIABLE}, which overrules that option"
            )

    def check_file(self, path: str, option: str) -> None:
        """Raise `ConfigurationError` unless ``path``, the value of ``option``, is on the list."""
        if path not in self.files:
            raise ConfigurationError(
                f"{option}: the file {path} is not allowed. Add it to {self.files_option}, or to the environment"
                f" variable {FILES_VARIABLE}, which overrules that option"
            )


def read_allow_list(
    urls: str | None,
    files: str | None,
    *,
    urls_option: str,
    files_option: str,
    environment: Mapping[str, str] = os.environ,
) -> AllowList:
    """Return the allow-list: the environment's where it is set, or else that of the options."""
    return AllowList(
        _items(environment.get(URLS_VARIABLE, urls)),
        _items(environment.get(FILES_VARIABLE, files)),
        urls_option,
        files_option,
    )


def _items(text: str | None) -> frozenset[str]:
    return frozenset(one.strip() for one in (text or "").split(",") if one.strip())
