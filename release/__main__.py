"""``python -m release [--output DIR] [--only VERSION]``: build, review, install and try all packages.

Ends with status 1 if anything failed. Runs in the environment of the dependency group ``dist``; ``make dist`` makes it.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

from release import contents, interpreters
from release.environments import CleanEnvironment, CommandError, build_wheel, run
from release.interpreters import MINORS, Interpreter
from release.inventory import EXTRAS, write_inventory
from release.notes import notes_of

ROOT: Final = Path(__file__).parents[1]
SMOKE: Final = Path(__file__).with_name("smoke.py")


class Row(NamedTuple):
    """One package in one interpreter: the installation and the run of `release/smoke.py`, or what went wrong."""

    package: Path
    interpreter: Interpreter
    result: str
    failed: bool


class Release:
    """The contents of the output directory, and the failures."""

    def __init__(self, output: Path, scratch: Path, chosen: dict[str, Interpreter]):
        self._output = output
        self._scratch = scratch
        self._chosen = chosen
        self._environments = 0
        self.rows: list[Row] = []
        self.faults: list[str] = []

    def build(self) -> None:
        """Build the sdist, and every wheel from it."""
        newest = list(self._chosen.values())[-1]
        _say("building the sdist")
        run([sys.executable, "-m", "build", "--sdist", "--outdir", str(self._output), str(ROOT)])
        (sdist,) = self._output.glob("*.tar.gz")
        self._review(sdist)
        _say("building the pure wheel")
        pure = self._keep(self._wheel(newest, sdist, pure=True))
        self._review(pure)
        wheels = []
        for interpreter in self._chosen.values():
            _say(f"building the wheel of {interpreter}")
            wheel = self._wheel(interpreter, sdist, pure=False)
            if wheel.name.endswith("-none-any.whl"):
                self.faults.append(f"{interpreter}: no compiled wheel: a C compiler or Python.h is missing")
                continue
            wheels.append((self._keep(_repaired(wheel)), interpreter))
            self._review(wheels[-1][0], compiled=True)
        for wheel, interpreter in wheels:
            self._try(wheel, interpreter, "compiled")
        for interpreter in self._chosen.values():
            self._try(pure, interpreter, "plain")
        self._try(sdist, newest, "plain")

    def describe(self, version: str) -> None:
        """Write release notes, bill of materials, licences and checksums; check the packages with twine."""
        packages = sorted(path for path in self._output.iterdir() if path.name.endswith((".whl", ".tar.gz")))
        try:
            run([sys.executable, "-m", "twine", "check", "--strict", *map(str, packages)])
        except CommandError as error:
            self.faults.append(str(error))
        notes = notes_of((ROOT / "CHANGELOG.md").read_text("utf-8"), version)
        (self._output / f"triokafka-{version}-notes.md").write_text(notes, encoding="utf-8")
        wheel = next(path for path in packages if path.name.endswith("-none-any.whl"))
        interpreter = next(iter(self._chosen.values()))
        for name, wanted in (("triokafka", ""), ("triokafka-with-extras", f"[{','.join(EXTRAS)}]")):
            _say(f"listing the packages and licences of {name}")
            try:
                environment = self._environment(interpreter)
                environment.install(f"{wheel}{wanted}")
                write_inventory(environment, self._output, f"{name}-{version}")
            except CommandError as error:
                self.faults.append(str(error))
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in packages]
        (self._output / "SHA256SUMS").write_text("".join(sums), encoding="ascii")

    def table(self) -> str:
        """Return the results as a table in Markdown."""
        lines = [
            f"{platform.system()} {platform.machine()}. Each package was installed in a clean environment without a C",
            "compiler, and sent records through a broker in memory, by API and by command line.",
            "",
            "| file | size | interpreter | result |",
            "| --- | ---: | --- | --- |",
        ]
        for row in self.rows:
            size = f"{row.package.stat().st_size / 1e6:.1f} MB"
            lines.append(f"| {row.package.name} | {size} | {row.interpreter} | {row.result} |")
        missing = [minor for minor in MINORS if minor not in self._chosen]
        if missing:
            lines += ["", f"Not found on this machine, so no wheel was built: CPython {', '.join(missing)}."]
        lines += ["", *(f"FAULT: {fault}" for fault in self.faults)] if self.faults else []
        return "\n".join(lines) + "\n"

    def _wheel(self, interpreter: Interpreter, sdist: Path, *, pure: bool) -> Path:
        target = self._scratch / f"{'pure' if pure else 'compiled'}-{interpreter.minor}"
        target.mkdir()
        return build_wheel(interpreter.path, sdist, target, pure=pure)

    def _keep(self, wheel: Path) -> Path:
        return Path(shutil.copy(wheel, self._output))

    def _review(self, package: Path, *, compiled: bool = False) -> None:
        self.faults += [f"{package.name}: {fault}" for fault in contents.faults_of(package, compiled=compiled)]

    def _try(self, package: Path, interpreter: Interpreter, kernels: str) -> None:
        _say(f"installing {package.name} in {interpreter}")
        try:
            environment = self._environment(interpreter)
            environment.install(str(package))
            result = f"works: {environment.run('-I', str(SMOKE), kernels).strip()}"
            failed = False
        except CommandError as error:
            result, failed = "FAILED", True
            self.faults.append(f"{package.name} in {interpreter}: {error}")
        self.rows.append(Row(package, interpreter, result, failed))

    def _environment(self, interpreter: Interpreter) -> CleanEnvironment:
        self._environments += 1
        return CleanEnvironment(self._scratch / f"clean-{self._environments}", interpreter.path)


def _repaired(wheel: Path) -> Path:
    """The wheel with the oldest manylinux tag whose systems can load its extensions; elsewhere the wheel itself."""
    if platform.system() != "Linux":
        return wheel
    target = wheel.parent / "repaired"
    run([sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(target), str(wheel)])
    (repaired,) = target.glob("*.whl")
    return repaired


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m release", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="emptied first; default: dist")
    parser.add_argument("--only", metavar="VERSION", choices=MINORS, help="for this interpreter alone, such as 3.12")
    arguments = parser.parse_args()
    chosen = interpreters.found()
    if arguments.only:
        chosen = {minor: chosen[minor] for minor in chosen if minor == arguments.only}
    if not chosen:
        print(f"no CPython found among {', '.join(MINORS)}", file=sys.stderr)
        return 1
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    output = arguments.output.resolve()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="triokafka-dist-") as name:
        release = Release(output, Path(name), chosen)
        try:
            release.build()
            release.describe(version)
        except CommandError as error:
            release.faults.append(str(error))
    table = release.table()
    (output / f"triokafka-{version}-packages.md").write_text(f"# Packages of {version}\n\n{table}", encoding="utf-8")
    print(table)
    return 1 if release.faults else 0


if __name__ == "__main__":
    sys.exit(main())
