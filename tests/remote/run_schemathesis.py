"""Random requests over `/openapi.json`, none answered with a 5xx: `run_schemathesis.py --base-url URL`.

schemathesis writes requests by the document of the running server, valid and invalid ones, for both surfaces. It is in
an environment of its own (`requirements-schemathesis.txt`). Rounds go on, each with another seed, until enough requests
are sent. The exit code is 1 when an answer was a 5xx, when a request got none in time, or when the server does not
answer an ordinary request at the end.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
_GATEWAY = ("/tokenwire/", "/healthz")


def _round(args: argparse.Namespace, seed: int, report: Path) -> None:
    command = [str(args.venv / "bin" / "st"), "--no-color", "run", f"{args.base_url}/openapi.json"]
    command += ["--checks", "not_a_server_error", "--phases", "examples,coverage,fuzzing", "--workers", "2"]
    command += ["--max-examples", str(args.each), "--seed", str(seed), "--request-timeout", "60"]
    command += ["--continue-on-failure", "--no-shrink", "--generation-database", "none", "--warnings", "off"]
    command += ["--suppress-health-check", "all", "--report-ndjson-path", str(report)]
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(HERE), "NO_PROXY": "*"}
    out = None if args.verbose else subprocess.DEVNULL
    subprocess.run(command, cwd=report.parent, env=environment, stdout=out, stderr=out, check=False)


def _answers(report: Path, base_url: str) -> list[tuple[str, int | None, str]]:
    """(request, status, body) of each request; no status where there was no answer."""
    found = []
    for line in report.read_text().splitlines():
        for scenario in json.loads(line).values():
            for one in (scenario.get("recorder") or {}).get("interactions", {}).values():
                request, response = one["request"], one.get("response")
                status = response["status_code"] if response else None
                body, content = _text((response or {}).get("content")), _text(request.get("body"))
                found.append(
                    (
                        f"{request['method']} {request['uri'].removeprefix(base_url)} {content[:2000]}",
                        status,
                        body[:300],
                    )
                )
    return found


def _wrong(request: str, status: int | None) -> bool:
    """Whether an answer is a failure of the server.

    The JSON gateway answers as grpc-gateway does: UNIMPLEMENTED, which a wrong method is too, is 501. A call that ends
    by the `timeout` that it asks for is 504.
    """
    if status is None:
        return True
    if status == 501:
        return not request.split(" ", 2)[1].startswith(_GATEWAY)
    if status == 504:
        return '"timeout"' not in request
    return status >= 500


def _text(content: dict[str, str] | None) -> str:
    return base64.b64decode((content or {}).get("$base64", "")).decode("utf-8", "replace")


def _alive(args: argparse.Namespace) -> bool:
    body = json.dumps({"model": args.model, "prompt": "Once", "max_tokens": 2}).encode()
    request = urllib.request.Request(  # noqa: S310  # the URL is the caller's
        f"{args.base_url}/v1/completions", body, {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except OSError:
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", required=True, help="such as http://127.0.0.1:8000")
    parser.add_argument("--model", default="smollm2-135m", help="what the server calls its model")
    parser.add_argument("--venv", type=Path, default=REPOSITORY / ".venv-schemathesis", help="where schemathesis is")
    parser.add_argument("--examples", type=int, default=5000, help="how many requests at least")
    parser.add_argument("--each", type=int, default=60, help="examples of an operation in one round")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--verbose", action="store_true", help="show what schemathesis prints")
    args = parser.parse_args()
    args.base_url = args.base_url.rstrip("/")
    began = time.monotonic()
    statuses: Counter[int | None] = Counter()
    wrong: list[str] = []
    rounds = 0
    while statuses.total() < args.examples:
        with tempfile.TemporaryDirectory(prefix="schemathesis-") as folder:
            report = Path(folder) / "events.ndjson"
            _round(args, args.seed + rounds, report)
            answers = _answers(report, args.base_url) if report.exists() else []
        rounds += 1
        for request, status, body in answers:
            statuses[status] += 1
            if _wrong(request, status):
                wrong.append(f"{status}: {request}\n    {body}")
        print(f"round {rounds}: {statuses.total()} requests, {len(wrong)} wrong", flush=True)
        if not answers:
            wrong.append("schemathesis sent nothing; --verbose shows why")
            break
    if not _alive(args):
        wrong.append("the server does not answer an ordinary request any more")
    shown = ", ".join(f"{status or 'none'}: {count}" for status, count in sorted(statuses.items(), key=str))
    print(f"{statuses.total()} requests in {time.monotonic() - began:.0f} s; statuses {shown}")
    for line in wrong[:40]:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
