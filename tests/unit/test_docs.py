"""The documentation is accurate: the functions, tests, files and versions that it names exist."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from docs import generate, options
from docs.kafka_apis import KAFKA_APIS
from triokafka.broker_stub.api import CONTROLLER_MODULES, MODULES, Handlers
from triokafka.broker_stub.config.broker_config import DEFINITIONS as BROKER_OPTIONS
from triokafka.cli.commands import COMMANDS
from triokafka.client.admin import AdminClient
from triokafka.client.config import AdminOptions, ConsumerOptions, ProducerOptions
from triokafka.protocol.api import API_NAMES, request_type, response_type

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/*.md", "docs/architecture/*.md", "docs/recipes/*.md")
    for page in ROOT.glob(pattern)
)
WHERE_IS = ROOT / "docs" / "architecture" / "where-is.md"
ARCHITECTURE = [page for page in PAGES if page.parent.name == "architecture"]

_QUOTED = re.compile(r"`([^`\n]+)`")
_FUNCTION = re.compile(r"([a-z_]\w*(?:\.\w+)+):([A-Za-z_][\w.]*)")
_FUNCTION_OF_FILE = re.compile(r"([a-z]\w+)\.([a-z_]\w*)")
_OTHER_NAMES_WITH_A_DOT = {
    "advertised.listeners", "cleanup.policy", "flush.messages", "flush.ms", "kraft.version", "triokafka.testing",
}  # fmt: skip
_METHOD = re.compile(r"([A-Z]\w+)\.(\w+)")
_TEST_PATH = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def quoted(page: Path) -> list[str]:
    return _QUOTED.findall(prose(page))


@cache
def test_names() -> dict[str, set[str]]:
    """Names of test functions by file."""
    return {
        name_of(path): {
            node.name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        for path in (ROOT / "tests").rglob("test_*.py")
    }


test_names.__test__ = False  # type: ignore[attr-defined]


@cache
def class_members() -> dict[str, set[str]]:
    """The members of classes by name: methods, attributes, assignments to ``self``; and their bases."""
    members: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for path in (ROOT / "triokafka").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                members.setdefault(node.name, set()).update(_defined_in(node))
                bases.setdefault(node.name, []).extend(base.id for base in node.bases if isinstance(base, ast.Name))
    for name in members:
        pending = list(bases[name])
        while pending:
            base = pending.pop()
            members[name] |= members.get(base, set())
            pending += bases.get(base, [])
    return members


@cache
def functions_of_files() -> dict[str, set[str]]:
    """Names of the package's functions, by the name of the file."""
    functions: dict[str, set[str]] = {}
    for path in (ROOT / "triokafka").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions.setdefault(path.stem, set()).update(
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )
    return functions


def _defined_in(node: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(node):
        match inner:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def test_the_pages_are_found() -> None:
    assert len(ARCHITECTURE) >= 7
    assert {"README.md", "docs/index.md", "docs/quickstart.md"} <= set(map(name_of, PAGES))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_functions_named_by_module_exist(page: Path) -> None:
    for text in quoted(page):
        named = _FUNCTION.fullmatch(text)
        if named:
            found: object = import_module(f"triokafka.{named[1]}")
            for part in named[2].split("."):
                assert hasattr(found, part), f"{text}: {found!r} has no {part}"
                found = getattr(found, part)


@pytest.mark.parametrize("page", ARCHITECTURE, ids=name_of)
def test_methods_named_by_class_exist(page: Path) -> None:
    for text in quoted(page):
        named = _METHOD.fullmatch(text)
        if named:
            assert named[2] in class_members().get(named[1], ()), f"{text} does not exist"


@pytest.mark.parametrize("page", ARCHITECTURE, ids=name_of)
def test_functions_named_by_file_exist(page: Path) -> None:
    functions = functions_of_files()
    for text in quoted(page):
        named = _FUNCTION_OF_FILE.fullmatch(text)
        if named and named[2] not in ("py", "properties") and text not in _OTHER_NAMES_WITH_A_DOT:
            assert named[2] in functions.get(named[1], ()), f"{text} does not exist"


@pytest.mark.parametrize("page", ARCHITECTURE, ids=name_of)
def test_modules_named_by_file_exist(page: Path) -> None:
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "triokafka").rglob("*.py")] + list(test_names())
    for text in quoted(page):
        if re.fullmatch(r"[\w/]+\.py", text):
            assert any(file == text or file.endswith(f"/{text}") for file in files), f"there is no {text}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tests_that_are_named_exist(page: Path) -> None:
    everywhere = set().union(*test_names().values())
    for text in quoted(page):
        path = _TEST_PATH.fullmatch(text)
        if path:
            assert path[1] in test_names(), f"there is no {path[1]}"
            assert path[2] is None or path[2] in test_names()[path[1]], f"there is no {text}"
        elif re.fullmatch(r"test_\w+", text):
            assert text in everywhere, f"there is no {text}"


def test_every_invariant_has_a_test() -> None:
    for page in ARCHITECTURE:
        rows = re.findall(r"^\| *([^|]+?) *\| *([^|]+?) *\|$", prose(page), re.MULTILINE)
        for invariant, guard in rows:
            if not re.fullmatch(r"invariant|:?-+:?", invariant):
                assert "test_" in guard, f"{name_of(page)}: nothing guards {invariant!r}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_in_the_pages_compiles(page: Path) -> None:
    for block in _PYTHON.findall(page.read_text(encoding="utf-8")):
        compile(block, name_of(page), "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if "://" in link:
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        if heading:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", text).strip().lower().replace(" ", "-") for text in headings}


def test_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link).resolve() for link in _LINK.findall(prose(index))}
    assert linked >= {page for page in PAGES if (ROOT / "docs") in page.parents} - {index}


def test_api_table_is_current() -> None:
    """`python -m docs.generate` writes it anew."""
    assert (ROOT / "docs" / "apis.md").read_text(encoding="utf-8") == generate.apis_page()


def test_the_front_page_counts_the_apis_that_there_are() -> None:
    assert f"({len(API_NAMES)} APIs in all their versions)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"brokers ({len(Handlers())} APIs)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_front_page_counts_the_scenarios_that_there_are() -> None:
    scenarios = json.loads((ROOT / "docs" / "conformance.json").read_text(encoding="utf-8"))["scenarios"]
    assert f"{len(scenarios)} scenarios" in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_every_command_has_a_row_in_the_page_on_the_command_line() -> None:
    rows = re.findall(r"^\| `triokafka ([a-z-]+)", (ROOT / "docs" / "cli.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(rows) == set(COMMANDS)


def test_commands_that_stand_in_for_kafkas_scripts_exist() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    table = text.partition("## Coming from Kafka's scripts\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `kafka-[^|]*\| `([a-z-]+)", table, re.MULTILINE)
    assert len(rows) > 15 and set(rows) <= COMMANDS.keys()


def test_every_call_of_the_admin_client_is_in_the_table_of_calls() -> None:
    first_cells = re.findall(r"^\| (`[^|]+) \|", (ROOT / "docs" / "admin.md").read_text(encoding="utf-8"), re.MULTILINE)
    listed = {name for cell in first_cells for name in _QUOTED.findall(cell)}
    calls = {name for name in vars(AdminClient) if not name.startswith("_")} - {"network", "kafka_metrics"}
    assert calls - listed == set()


def test_producers_tables_are_current() -> None:
    """`python -m docs.generate` writes them anew."""
    assert (ROOT / "docs" / "producer.md").read_text(encoding="utf-8") == generate.producer_page()


def test_metrics_page_is_current() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == generate.metrics_page()


def test_api_table_agrees_with_declarations_and_handlers() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", generate.apis_page(), re.MULTILINE)
    assert [int(key) for key, *_ in rows] == list(KAFKA_APIS)
    of_broker, of_controller = Handlers(), Handlers(CONTROLLER_MODULES)
    assert len(of_broker) == len(MODULES)
    for table in (of_broker, of_controller):
        assert table.advertised == {key: handler.advertised for key, handler in table.items()}
    handlers = {**of_controller, **of_broker}
    assert {int(key) for key, *_, served in rows if served.strip()} == set(handlers)
    for key, name, kafka, declared, served in rows:
        if declared.strip():
            assert API_NAMES[int(key)] == name
            assert str(request_type(int(key)).versions) == str(response_type(int(key)).versions) == declared.strip()
            assert declared.strip() == kafka.strip(), f"{name}: Kafka has other stable versions"
        if served.strip():
            low, _, high = served.strip().partition("-")
            assert handlers[int(key)].versions == range(int(low), int(high or low) + 1)


def test_reference_has_every_field_option_and_error() -> None:
    pages = generate.reference_pages()
    for key, name in API_NAMES.items():
        for message in (request_type(key), response_type(key)):
            for field in message.__fields__:
                assert f"| `{field.name}` |" in pages[f"{name}.md"]
    assert "| `linger_ms` | `linger.ms` | `float` | `5` |" in pages["options-producer.md"]
    assert "| `num.partitions` |" in pages["options-broker-replication.md"]
    assert "| `retention.ms` |" in pages["options-topic.md"]
    assert "| 3 | `UnknownTopicOrPartitionError` |" in pages["errors.md"]


def test_every_option_is_on_one_page_with_kafkas_name() -> None:
    pages = {name: "\n".join(parts) for name, (_, parts) in options.pages().items()}
    for name in BROKER_OPTIONS:
        assert sum(f"| `{name}` |" in text for page, text in pages.items() if "broker" in page) == 1, name
    everything = {name for kind in (ProducerOptions, ConsumerOptions, AdminOptions) for name, _, _ in kind.describe()}
    clients = "\n".join(text for page, text in pages.items() if "broker" not in page and "topic" not in page)
    assert {name for name in everything if f"| `{name}` |" not in clients} == set()
    assert set(options.KAFKAS_NAMES) <= everything


def test_kips_have_a_known_state_and_unfinished_ones_a_reason() -> None:
    rows = re.findall(
        r"^\| ([\d, ]+) \| ([^|]+) \| ([^|]+) \| ([^|]*)\|$", prose(ROOT / "docs" / "kips.md"), re.MULTILINE
    )
    numbers = [int(number) for kips, *_ in rows for number in kips.split(",")]
    assert len(numbers) > 50
    assert len(numbers) == len(set(numbers))
    for kips, _, state, remark in rows:
        assert state in ("done", "partly", "not yet", "refused"), f"KIP {kips}"
        assert remark.strip() or state in ("done", "not yet"), f"KIP {kips} is {state}: why?"


def test_kips_that_the_code_names_are_in_the_table() -> None:
    table = {
        int(n)
        for row in re.findall(r"^\| ([\d, ]+) \|", prose(ROOT / "docs" / "kips.md"), re.M)
        for n in row.split(",")
    }
    named = {
        int(number)
        for path in (ROOT / "triokafka").rglob("*.py")
        if "protocol" not in path.parts
        for number in re.findall(r"KIP-(\d+)", path.read_text(encoding="utf-8"))
    }
    assert sorted(named - table) == []


def test_examples_that_recipes_show_exist() -> None:
    shown = [name for page in PAGES for name in re.findall(r"<!-- example (.+?) -->", page.read_text("utf-8"))]
    assert len(shown) >= 8
    assert [name for name in shown if not (ROOT / "examples" / name).exists()] == []


def messages_without_source(page: str) -> list[str]:
    """The messages in a page's ``text`` blocks whose parts, between the …, do not all occur in one file."""
    adjacent = re.compile(r'"\s*\n\s*f?"')
    files = [adjacent.sub("", path.read_text("utf-8")) for path in (ROOT / "triokafka").rglob("*.py")]
    found = []
    for message in re.findall(r"^```text\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL):
        parts = [part.strip() for part in message.split("…") if len(part.strip(" .:;,()")) > 3]
        if not parts or not any(all(part in text for part in parts) for text in files):
            found.append(message)
    return found


def test_messages_in_the_page_on_troubleshooting_exist() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    assert page.count("```text\n") > 30
    assert messages_without_source(page) == []
    assert messages_without_source("```text\ntopic … is on holiday\n```") == ["topic … is on holiday"]


def test_examples_compile_and_say_how_to_run_them() -> None:
    examples = sorted((ROOT / "examples").glob("*.py"))
    assert len(examples) >= 5
    for path in examples:
        document = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert document is not None
        assert f"examples/{path.name}" in document or "pytest examples" in document


def test_generated_pages_say_that_they_are_generated() -> None:
    assert all("python -m docs.generate" in text for text in generate.reference_pages().values())
    assert inspect.getdoc(generate)


def _answers() -> list[tuple[str, str, str]]:
    """Question, file and function of each row of the page."""
    rows = re.findall(r"^\| (Where .*\?) \| `([^`]+)`.* \| `([^`]+)` \|$", WHERE_IS.read_text(), re.MULTILINE)
    return [(question, file, function) for question, file, function in rows]


def test_a_newcomers_questions_have_answers_that_exist() -> None:
    answers = _answers()
    assert len(answers) >= 40
    assert len(answers) == WHERE_IS.read_text().count("\n| Where "), "a row has another form"
    missing = [f"{file}: {name}" for _, file, name in answers if not _is_defined(ROOT / "triokafka" / file, name)]
    assert not missing


def _is_defined(file: Path, name: str) -> bool:
    """Whether the file defines a function, or a class with the method, itself."""
    body: list[ast.stmt] = ast.parse(file.read_text()).body if file.exists() else []
    *owners, function = name.split(".")
    for owner in owners:
        body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == owner), [])
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function for node in body)
