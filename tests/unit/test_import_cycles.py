"""The modules of the package import each other without cycles, imports for types included."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import triokafka

_ROOT: Final = Path(triokafka.__file__).parents[1]


def _imports(package: str) -> dict[str, set[str]]:
    """Return the modules of a package with the modules of it that each imports: in functions and for types too."""
    files = {}
    for path in (_ROOT / package.replace(".", "/")).rglob("*.py"):
        parts = path.relative_to(_ROOT).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        imported: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    module = f"{node.module}.{alias.name}"
                    imported.add(module if module in files else node.module)
        found[name] = imported & files.keys() - {name}
    return found


def _cycles(imports: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules that import each other, directly or through others."""
    reached = {name: _reachable(name, imports) for name in imports}
    cycles: list[set[str]] = []
    for name in sorted(imports):
        if name in reached[name] and not any(name in cycle for cycle in cycles):
            cycles.append({other for other in reached[name] if name in reached[other]})
    return cycles


def _reachable(name: str, imports: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    left = list(imports[name])
    while left:
        module = left.pop()
        if module not in seen:
            seen.add(module)
            left.extend(imports[module])
    return seen


def test_package_has_no_import_cycle() -> None:
    imports = _imports("triokafka")
    del imports["triokafka"]  # the front page names everything, and imports it when a name is first used
    for modules in imports.values():
        modules.discard("triokafka")
    assert _cycles(imports) == []


def test_cycle_through_a_third_module_is_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert _cycles(imports) == [{"a", "b", "c"}]


def test_scripts_of_the_console_have_no_import_cycle() -> None:
    scripts = sorted((_ROOT / "triokafka" / "console" / "static").glob("*.js"))
    imports = {one.name: set(re.findall(r'from "\./([^"]+)"', one.read_text("utf-8"))) for one in scripts}
    assert imports["console.js"], "the modules were not found"
    assert _cycles(imports) == []
