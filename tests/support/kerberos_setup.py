"""Kerberos for the tests, without root: MIT's KDC and tools from Debian's packages, and the package gssapi.

``python -m tests.support.kerberos_setup`` installs whatever is missing. It unpacks the packages below
``.interop/kerberos`` of the checkout, and builds gssapi, which has no wheels for Linux, into the environment of its
interpreter. It uses what the system already has, unchanged. If something is not available, for example without a
network, it prints the reason and exits with status 1; the tests that need Kerberos are then skipped with that reason.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

DIRECTORY: Final = Path(__file__).parents[2] / ".interop" / "kerberos"
TOOLS: Final = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_PACKAGES: Final = ("krb5-kdc", "krb5-admin-server", "krb5-user", "libkrb5-dev")
_GSSAPI: Final = "gssapi>=1.8"
_UNPACKED: Final = DIRECTORY / "root"
_REASON: Final = DIRECTORY / "reason"
_LIBRARY: Final = "libgssapi_krb5.so.2"
_HEADER: Final = Path("/usr/include/gssapi/gssapi_ext.h")
_TO_INSTALL: Final = re.compile(r"^Inst (\S+) (?:\[\S+\] )?\((\S+) ", re.MULTILINE)
_SECONDS_TO_DOWNLOAD: Final = 90
_SECONDS_TO_BUILD: Final = 600
_BRIEF: Final = ("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=10", "-o", "Acquire::https::Timeout=10")


class SetupError(Exception):
    """Something is not available; the message names it and gives the reason."""


def search_path() -> str:
    """Return the search path for commands: the system's, then that of the unpacked tools."""
    given = os.environ.get("PATH", "")
    return os.pathsep.join((given, "/usr/sbin", "/usr/local/sbin", f"{_UNPACKED}/usr/sbin", f"{_UNPACKED}/usr/bin"))


def missing_tools() -> list[str]:
    """Return the names of the tools that are neither on the system nor unpacked."""
    return [tool for tool in TOOLS if shutil.which(tool, path=search_path()) is None]


def library_directories() -> list[str]:
    """Return the directories of the unpacked libraries, for `tool_environment` and the linker."""
    return [str(directory) for directory in sorted(_UNPACKED.glob("usr/lib/*-linux-*")) if directory.is_dir()]


def tool_environment() -> dict[str, str]:
    """Return the variables that unpacked tools need to find their libraries; empty for the system's tools."""
    found = library_directories()
    return {"LD_LIBRARY_PATH": os.pathsep.join(found)} if found else {}


def database_modules() -> str | None:
    """Return the directory of the KDC's database modules, if the KDC is an unpacked one."""
    kdc = shutil.which("krb5kdc", path=search_path())
    if kdc is None or not Path(kdc).is_relative_to(_UNPACKED):
        return None
    return next((f"{library}/krb5/plugins/kdb" for library in library_directories()), None)


def reason() -> str:
    """Return why the last set-up failed, or what to do if none has run."""
    if _REASON.exists():
        return _REASON.read_text().strip()
    return "run python -m tests.support.kerberos_setup"


def main() -> int:
    """Install what is missing, and return the exit status."""
    if _is_complete():
        return 0
    with _alone():
        try:
            _make()
        except (SetupError, OSError, subprocess.SubprocessError) as error:
            text = " ".join(str(error).split())[:600]
            _REASON.write_text(text)
            print(f"Kerberos: {text}; its tests skip", file=sys.stderr)
            return 1
        _REASON.unlink(missing_ok=True)
    return 0


def _is_complete() -> bool:
    return not missing_tools() and _has_gssapi()


def _has_gssapi() -> bool:
    importlib.invalidate_caches()
    try:
        importlib.import_module("gssapi")
    except ImportError:
        return False
    return True


def _make() -> None:
    if missing_tools() or not (_has_gssapi() or _HEADER.exists() or (_UNPACKED / _HEADER.relative_to("/")).exists()):
        _unpack_packages()
    if missing := missing_tools():
        raise SetupError(f"the packages {' '.join(_PACKAGES)} do not contain {', '.join(missing)}")
    if not _has_gssapi():
        _build_gssapi()


@contextmanager
def _alone() -> Iterator[None]:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with (DIRECTORY / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unpack_packages() -> None:
    """Unpack the packages and their missing dependencies, as apt-get resolves them."""
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise SetupError(f"{tool} was not found: install a KDC (krb5kdc), kinit and the headers of Kerberos")
    archives = DIRECTORY / "archives"
    shutil.rmtree(archives, ignore_errors=True)
    archives.mkdir(parents=True)
    try:
        _download(archives, ())  # with the lists of the system, which may be missing or older than the packages
    except SetupError:
        _download_by_new_lists(archives)
    fresh = DIRECTORY / "root.new"
    shutil.rmtree(fresh, ignore_errors=True)
    for archive in sorted(archives.glob("*.deb")):
        _run(["dpkg", "-x", str(archive), str(fresh)], archives, _SECONDS_TO_DOWNLOAD)
    _mend_links(fresh)
    shutil.rmtree(_UNPACKED, ignore_errors=True)
    fresh.rename(_UNPACKED)
    shutil.rmtree(archives)


def _download_by_new_lists(archives: Path) -> None:
    private = _private_lists()
    first_error: SetupError | None = None
    try:
        _apt(archives, (*private, "-o", "APT::Update::Error-Mode=any"), "update")
    except SetupError as error:
        first_error = error  # it may concern other packages
    try:
        _download(archives, private)
    except SetupError as error:
        raise first_error or error from None


def _private_lists() -> tuple[str, ...]:
    """Return apt-get's options for package lists in a directory of ours, which need no write access to the system's."""
    state, cache = DIRECTORY / "apt" / "lists", DIRECTORY / "apt" / "cache"
    for directory in (state, cache):
        (directory / "partial").mkdir(parents=True, exist_ok=True)
    return ("-o", f"Dir::State::lists={state}", "-o", f"Dir::Cache={cache}")


def _download(archives: Path, options: Sequence[str]) -> None:
    plan = _apt(archives, options, "install", "--simulate", "--no-install-recommends", *_PACKAGES)
    chosen = [f"{name}={version}" for name, version in _TO_INSTALL.findall(plan)]
    if not chosen:
        raise SetupError(f"apt-get considers {' '.join(_PACKAGES)} installed, but {missing_tools()} are missing")
    _apt(archives, options, "download", *chosen)


def _apt(directory: Path, options: Sequence[str], *command: str) -> str:
    return _run(["apt-get", "--yes", "--quiet", *_BRIEF, *options, *command], directory, _SECONDS_TO_DOWNLOAD)


def _run(command: list[str], directory: Path, seconds: float, **variables: str) -> str:
    environment = {**os.environ, "LC_ALL": "C", **variables}
    process = subprocess.Popen(
        command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        printed, complaints = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise SetupError(f"{Path(command[0]).name} took more than {seconds:.0f} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it started
            process.communicate()
    if process.returncode:
        last = (complaints.strip() or printed.strip()).splitlines()[-3:]
        raise SetupError(f"{Path(command[0]).name} failed: {' '.join(last)}")
    return printed


def _mend_links(root: Path) -> None:
    """Redirect links of the development packages to the system's libraries where those were not unpacked."""
    for link in root.glob("usr/lib/*/**/*.so"):
        if link.is_symlink() and not link.exists():
            target = os.path.normpath(link.parent / link.readlink())
            there = Path("/") / Path(target).relative_to(root)
            if there.exists():
                link.unlink()
                link.symlink_to(there)


def _build_gssapi() -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--timeout", "10", "--retries", "1"]
    variables = {"CFLAGS": "-O0 -g0"}  # half a minute of compiling
    if not _HEADER.exists():
        own = [directory for directory in library_directories() if (Path(directory) / _LIBRARY).exists()]
        if own:  # Another checkout must not find a wheel that names this directory in pip's cache.
            command.append("--no-cache-dir")
        headers = _UNPACKED / "usr" / "include"
        variables |= {
            "GSSAPI_COMPILER_ARGS": f"-I{headers} -I{headers / 'mit-krb5'} -DHAS_GSSAPI_EXT_H",
            "GSSAPI_LINKER_ARGS": " ".join(
                (
                    *(f"-L{directory}" for directory in library_directories()),
                    *(f"-Wl,--disable-new-dtags,-rpath,{directory}" for directory in own),
                    "-lgssapi_krb5",
                )
            ),
            **(tool_environment() if own else {}),
        }
    _run([*command, _GSSAPI], DIRECTORY, _SECONDS_TO_BUILD, **variables)
    if not _has_gssapi():
        raise SetupError("gssapi was built, but cannot be imported")


if __name__ == "__main__":
    sys.exit(main())
