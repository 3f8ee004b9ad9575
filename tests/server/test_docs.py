"""The pages say what the code says: tables are compared with it, snippets parse, links lead somewhere."""

from __future__ import annotations

import argparse
import ast
import json
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import pytest
import yaml
from google.protobuf import json_format
from google.rpc import code_pb2
from grpc_health.v1 import health_pb2
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from tokenwire.v1 import chat_pb2
from tokenwire_server import cli, serve_env, wire
from tokenwire_server.backend import contract_services
from tokenwire_server.config import ServiceConfig, load_config, load_file
from tokenwire_server.errors import REASONS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").glob("*.md")
)
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def page(name: str) -> str:
    return (ROOT / name).read_text()


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def tables(text: str, heading: str) -> Iterator[list[str]]:
    """Rows of the tables whose first heading is `heading`, as lists of cells."""
    inside = False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith(f"| {heading} |"):
            inside = True
        elif inside and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def snippets(language: str) -> list[Any]:
    return [
        pytest.param(block, id=f"{path.name}-{number}")
        for path in PAGES
        for number, block in enumerate(blocks(path.read_text(), language))
    ]


# docs/errors.md


def test_the_table_of_errors_is_the_one_in_the_code() -> None:
    rows = {row[0]: row[1:] for row in tables(page("docs/errors.md"), "reason")}
    assert list(rows) == list(REASONS)
    for reason, (code, _details, status, kind, openai_code, meaning, remedy) in rows.items():
        row = REASONS[reason]
        assert code == code_pb2.Code.Name(row.grpc_code), reason
        assert status == str(row.http_status), reason
        assert kind == row.openai_type, reason
        assert openai_code == (row.openai_code or ("by the rule" if reason == "INVALID_FIELD" else "null")), reason
        assert meaning.endswith("."), reason
        assert remedy.endswith("."), reason


def test_the_page_of_errors_says_which_reasons_nothing_raises_yet() -> None:
    # The remote REST door gives reasons to statuses that some proxy wrote; that is not the service raising them.
    sources = [p for p in (ROOT / "server").rglob("*.py") if p.name not in ("errors.py", "channel_status.py")]
    text = "".join(path.read_text() for path in sources)
    raised = {reason for reason in REASONS if re.search(rf"(\.of|retry_later|not_found)\(\s*\"{reason}\"", text)}
    raised |= {"INVALID_FIELD", "CONTEXT_LENGTH_EXCEEDED", "FEATURE_UNSUPPORTED", "INTERNAL"}  # by methods of their own
    unraised = {row[0] for row in tables(page("docs/errors.md"), "reason") if "Not raised yet" in row[6]}
    assert unraised == REASONS.keys() - raised


# docs/configuration.md


def models(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Every model of the configuration with the path at which it stands."""
    yield path, model
    for name, field in model.model_fields.items():
        if name == "ingress_deployment_config":
            continue  # its keys are deployment_config's, and stand there
        for inner, suffix in _models_of(field.annotation):
            yield from models(inner, f"{path}.{name}{suffix}" if path else f"{name}{suffix}")


def _models_of(annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, ""
    elif get_origin(annotation) is list:
        yield from ((inner, "[]") for inner, _ in _models_of(get_args(annotation)[0]))
    elif get_origin(annotation) in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from _models_of(one)


def sections(text: str) -> dict[str, str]:
    """Text below each heading of the second level; the service's own is at ""."""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return {"" if name == "The service" else name: body for name, body in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.mark.parametrize(
    ("path", "model"), [pytest.param(*one, id=one[0] or "service") for one in models(ServiceConfig)]
)
def test_every_key_of_the_configuration_is_on_its_page_with_its_default(path: str, model: type[BaseModel]) -> None:
    rows = {row[0].strip("`"): row[1] for row in tables(sections(page("docs/configuration.md"))[path], "key")}
    assert list(rows) == list(model.model_fields)
    for name, field in model.model_fields.items():
        if field.is_required():
            assert rows[name] == "required"
        elif field.default is not PydanticUndefined and not isinstance(field.default, BaseModel | None):
            default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
            assert rows[name] == f"`{default}`", name


def test_every_command_and_flag_is_on_the_page_with_its_default() -> None:
    text = page("docs/configuration.md")
    listed = {row[0].strip("`").split()[1] for row in tables(text, "command")}
    (commands,) = (a for a in cli._parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert listed == {*commands.choices, "--version"}
    for command, parser in commands.choices.items():
        flags = {a.option_strings[-1]: a for a in parser._actions if a.option_strings and a.dest != "help"}
        rows = {row[0].strip("`"): row[1] for row in tables(text, f"flag of `{command}`")}
        assert rows.keys() == flags.keys(), command
        for name, flag in flags.items():
            if rows[name].startswith("`") and not rows[name].isupper() and flag.default:
                assert rows[name].strip("`") in (str(flag.default), str(flag.default).removesuffix(".0")), name


ON_A_NODE = {**serve_env.ESSENTIAL, serve_env.HAPROXY: "$(command -v tokenwire-haproxy)"}


def test_every_variable_that_is_set_for_serve_is_on_the_page(tmp_path: Path) -> None:
    text = page("docs/configuration.md")
    variables = {**serve_env.serve_environment(60, 1024), **serve_env.local_environment(tmp_path, {})}
    assert [name for name in variables if f"`{name}`" not in text] == []
    rows = {row[0].strip("`"): row[1].strip("`") for row in tables(text, "variable") if len(row) == 3}
    assert {name: rows[name] for name in serve_env.ESSENTIAL} == ON_A_NODE


def test_the_readme_has_the_variables_of_every_node() -> None:
    (block,) = (one for one in blocks(page("README.md"), "sh") if "RAY_SERVE" in one)
    assert block.splitlines() == [f"export {name}={value}" for name, value in ON_A_NODE.items()]


# docs/contract.md


def test_the_table_of_services_is_the_contract() -> None:
    rows = {row[0].strip("`"): row[1].split(", ") for row in tables(page("docs/contract.md"), "service")}
    for name, service in contract_services().items():
        assert rows.pop(name) == [method.name for method in service.methods]
    assert rows.keys() == {health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, "server reflection"}


# Snippets


@pytest.mark.parametrize("block", snippets("yaml"))
def test_yaml_is_a_configuration_that_is_accepted(block: str) -> None:
    load_config(yaml.safe_load(block))


@pytest.mark.parametrize("block", snippets("python"))
def test_python_parses(block: str) -> None:
    ast.parse(block)


@pytest.mark.parametrize("block", snippets("sh"))
def test_shell_parses_and_names_what_there_is(block: str) -> None:
    subprocess.run(["bash", "-n"], input=block, text=True, check=True)
    targets = re.findall(r"^([a-z]+):", page("Makefile"), re.MULTILINE)
    parser = cli._parser()
    for document in re.findall(r"<<'EOF'\n(.*?)^EOF$", block, re.DOTALL | re.MULTILINE):
        assert yaml.safe_load(document)["version"] == "v2"
    for line in (
        re.sub(r"<<'EOF'\n.*?^EOF$", "", block, flags=re.DOTALL | re.MULTILINE).replace("\\\n", " ").splitlines()
    ):
        words = shlex.split(line.partition(" > ")[0], comments=True)
        if words[:1] == ["make"]:
            assert words[1] in targets
        if words[:1] == ["tokenwire"]:
            parser.parse_args(words[1:])
        if "-d" in words:
            body = words[words.index("-d") + 1]
            if words[-1].endswith("/StreamChat"):
                json_format.Parse(body, chat_pb2.ChatRequest())
            elif words[-1].endswith("/Check"):
                json_format.Parse(body, health_pb2.HealthCheckRequest())
            else:
                assert {"model", "messages"} <= json.loads(body).keys()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_and_paths_lead_somewhere(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        name, _, anchor = target.partition("#")
        page_of = (path.parent / name) if name else path
        assert page_of.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", page_of.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}, target
    for name in re.findall(r"`((?:examples|tests|docs|protos|clients|server)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_make_targets_that_a_page_names_exist(path: Path) -> None:
    targets = re.findall(r"^([a-z]+):", page("Makefile"), re.MULTILINE)
    assert [one for one in re.findall(r"`make ([a-z]+)", path.read_text()) if one not in targets] == []


def test_the_changelog_begins_with_the_version_that_comes() -> None:
    version = re.search(r'^version = "([\d.]+?)(\.dev\d+)?"$', page("pyproject.toml"), re.MULTILINE)
    heading = re.search(r"^## (.*)$", page("CHANGELOG.md"), re.MULTILINE)
    assert version is not None
    assert heading is not None
    assert version[1] in heading[1]
    assert ("Unreleased" in heading[1]) == (version[2] is not None)


# examples/*.yaml


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_check_accepts_every_example(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(path)]) == 0
    assert ": fine (" in capsys.readouterr().out
    assert f"`{path.name}`" in page("docs/configuration.md")


def test_the_gpu_example_reserves_what_the_engine_uses() -> None:
    (llm,) = load_file(ROOT / "examples" / "gpu.yaml").llm_configs
    assert llm.deployment_config.ray_actor_options.num_gpus == llm.engine_kwargs["tensor_parallel_size"]


def test_the_serve_config_file_is_one_and_registers_every_service() -> None:
    path = ROOT / "examples" / "serve-deploy.yaml"
    # In a process of its own: Serve's schema imports Serve, which belongs to the tests that run it.
    program = (
        f"import yaml; from ray.serve.schema import ServeDeploySchema as S; S(**yaml.safe_load(open({str(path)!r})))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    data = yaml.safe_load(path.read_text())
    assert data["grpc_options"]["grpc_servicer_functions"] == wire.registration_functions()
    module, _, name = data["applications"][0]["import_path"].partition(":")
    assert (module, name) == ("tokenwire_server", "build_app")
