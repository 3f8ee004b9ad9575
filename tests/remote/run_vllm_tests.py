"""vLLM's own remote tests against a running server: `python tests/remote/run_vllm_tests.py --base-url URL`.

They are in the source distribution of vLLM 0.32.0, which is fetched with pip, or given by `--source` as a folder or a
`.tar.gz`. What the tests need of vLLM's `tests/utils.py` and `tests/conftest.py` is replaced by a shim that points at
the server. `vllm_cases.yaml` lists what runs, what is skipped, and each failure that is known, with its reason. The
exit code is 1 when a test fails that is not listed, and when a listed one passes.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import yaml

VERSION = "0.32.0"
HERE = Path(__file__).resolve().parent
CASES = HERE / "vllm_cases.yaml"

# The names of models that the tests give to their servers, and so to their requests.
_MODEL = re.compile(r"""\b(?:MODEL_NAME|model_name|MODEL)\s*=\s*("[\w.-]+/[\w.-]+")""")
_MODELS = ('"claude-3-7-sonnet-latest"', '"Qwen/Qwen3-1.7B"', '"TinyLlama/TinyLlama-1.1B-Chat-v1.0"')
# What the tests chose for the servers that they start: (module, theirs, ours).
_ADAPTED = (
    # Theirs allows a context of 10,100 tokens.
    ("serve/instrumentator/test_basic.py", "10000", "3000"),
    ("serve/tokenize/test_tokenization.py", "8192", "{max_model_len}"),
)


def source_of(given: str | None, work: Path) -> Path:
    """The folder of vLLM's sources: given, unpacked, or fetched with pip."""
    if given and Path(given).is_dir():
        return Path(given).resolve()
    archive = Path(given) if given else None
    if archive is None:
        fetched = work / "pip"
        fetched.mkdir()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "vllm"]
        command += ["--no-build-isolation", "--no-clean", "--dest", str(fetched), f"vllm=={VERSION}"]
        # pip has no command for "fetch only": it goes on to ask setup.py for metadata, which may fail here. By then the
        # sources lie unpacked in its temporary folder, and --no-clean leaves them there.
        subprocess.run(command, env=os.environ | {"TMPDIR": str(fetched)}, capture_output=True, check=False)
        for tests in fetched.glob("**/tests/entrypoints/openai"):
            return tests.parents[2]
        archive = next(fetched.glob("**/*.tar.gz"), None)
        if archive is None:
            sys.exit(f"the source distribution of vllm {VERSION} could not be fetched; give it with --source")
    with tarfile.open(archive) as tar:
        tar.extractall(work / "sdist", filter="data")
    return next((work / "sdist").iterdir())


def prepare(source: Path, work: Path, model: str, max_model_len: int) -> Path:
    """A copy of the tests with the shim in it and the served model's name for theirs."""
    root = work / "run"
    for part in ("entrypoints", "tool_use"):
        shutil.copytree(source / "tests" / part, root / "tests" / part)
    shutil.copytree(source / "examples", root / "examples")
    (root / "tests" / "__init__.py").touch()
    shutil.copy(HERE / "shim_utils.py", root / "tests" / "utils.py")
    shutil.copy(HERE / "shim_conftest.py", root / "tests" / "conftest.py")
    for path in (*root.glob("tests/entrypoints/**/*.py"), *root.glob("tests/tool_use/*.py")):
        text = path.read_text()
        for name in (*_MODEL.findall(text), *_MODELS):
            text = text.replace(name, json.dumps(model))
        text = re.sub(r"(\"model\": )\"[\w.-]+/[\w.-]+\"", rf"\1{json.dumps(model)}", text)
        for module, theirs, ours in _ADAPTED:
            if str(path).endswith(module):
                text = text.replace(theirs, ours.format(max_model_len=max_model_len))
        path.write_text(text)
    (root / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = strict\ntimeout = 180\n"
        "markers =\n    slow_test: slow\n    skip_global_cleanup: theirs\n    cpu_test: theirs\n"
    )
    return root


def where(name: str) -> str:
    return f"tests/{name}" if name.startswith("tool_use/") else f"tests/entrypoints/{name}"


def run(root: Path, cases: dict[str, Any], args: argparse.Namespace) -> list[dict[str, str]]:
    """Runs the tests and reads what the shim wrote down of each."""
    results = root / "results.jsonl"
    results.touch()
    environment = os.environ | {
        "REMOTE_BASE_URL": args.base_url,
        "REMOTE_MODEL": args.model,
        "REMOTE_TOKENIZER": args.tokenizer,
        "REMOTE_RESULTS": str(results),
        "REMOTE_SKIP": json.dumps(cases["skip"]),
        "PYTHONPATH": str(root),
        "HF_HUB_OFFLINE": "1",
        "VLLM_TARGET_DEVICE": "cpu",
    }
    chosen = [one for one in cases["run"] if not args.only or any(word in one for word in args.only)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(root / "pytest.ini")]
    command += ["--rootdir", str(root), *args.pytest_arg]
    # tool_use has a server configuration for each parser, and the server has one.
    for extra, modules in (
        ([], [one for one in chosen if not one.startswith("tool_use/")]),
        (["-k", "hermes"], [one for one in chosen if one.startswith("tool_use/")]),
    ):
        if modules:
            paths = [where(one) for one in modules]
            log = None if args.verbose else subprocess.DEVNULL
            subprocess.run([*command, *paths, *extra], cwd=root, env=environment, stdout=log, stderr=log, check=False)
    return [json.loads(line) for line in results.read_text().splitlines()]


def matches(test: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(test, pattern.replace("[", "[[]"))


def judge(found: list[dict[str, str]], cases: dict[str, Any], *, whole: bool) -> int:
    """Prints the table and what is not as listed; the exit code."""
    outcomes: dict[str, str] = {}
    texts: dict[str, str] = {}
    for one in found:
        # A test that passed and whose fixture then failed has failed.
        if outcomes.get(one["test"]) != "failed":
            outcomes[one["test"]], texts[one["test"]] = one["outcome"], one["text"]
    patterns = [(pattern, group) for group in cases["expected"] for pattern in group["tests"]]
    table: defaultdict[str, Counter[str]] = defaultdict(Counter)
    wrong = []
    used = set()
    for test, outcome in outcomes.items():
        known = [pattern for pattern, _ in patterns if matches(test, pattern)]
        module = test.split("::")[0]
        if outcome == "failed":
            table[module]["explained" if known else "UNEXPLAINED"] += 1
            used.update(known)
            if not known:
                wrong.append(f"FAILED {test}\n    {texts[test][:600]}")
        else:
            table[module][outcome] += 1
    if whole:
        wrong += [
            f"STALE  {pattern}: nothing that it names fails"
            for pattern, group in patterns
            if pattern not in used and not group.get("may_pass")
        ]
    columns = ("passed", "explained", "UNEXPLAINED", "skipped")
    print(f"{'module':66}" + "".join(f"{one:>12}" for one in columns))
    for module in sorted(table):
        print(f"{module:66}" + "".join(f"{table[module][one]:12}" for one in columns))
    print(f"{'total':66}" + "".join(f"{sum(row[one] for row in table.values()):12}" for one in columns))
    for line in wrong:
        print(line)
    return 1 if wrong or not outcomes else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", required=True, help="such as http://127.0.0.1:8000")
    parser.add_argument("--model", default="smollm2-135m", help="what the server calls its model")
    parser.add_argument("--tokenizer", help="folder of the model's tokenizer; default: the embedded model's")
    parser.add_argument("--source", help=f"vLLM {VERSION}'s sources, a folder or a .tar.gz; default: fetched with pip")
    parser.add_argument("--only", action="append", default=[], help="modules whose name holds this; more than once")
    parser.add_argument("--pytest-arg", action="append", default=[], help="passed on; more than once")
    parser.add_argument("--verbose", action="store_true", help="show pytest's own output")
    parser.add_argument("--results", help="where to keep the outcomes, JSON lines")
    args = parser.parse_args()
    if not args.tokenizer:
        from tokenwire_server.embedded import provide

        args.tokenizer = str(provide("embedded:smollm2-135m-instruct", print))
    with urllib.request.urlopen(f"{args.base_url}/v1/models", timeout=30) as answer:  # noqa: S310  # the caller's URL
        longest = next(one["max_model_len"] for one in json.load(answer)["data"] if one["id"] == args.model)
    cases = yaml.safe_load(CASES.read_text())
    with tempfile.TemporaryDirectory(prefix="vllm-tests-") as folder:
        work = Path(folder)
        root = prepare(source_of(args.source, work), work, args.model, longest)
        found = run(root, cases, args)
        if args.results:
            shutil.copy(root / "results.jsonl", args.results)
    return judge(found, cases, whole=not args.only and not args.pytest_arg)


if __name__ == "__main__":
    sys.exit(main())
