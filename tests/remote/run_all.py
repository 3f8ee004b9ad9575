"""The three runners of this folder against a service of its own: `python -m tests.remote.run_all`.

The exit code is 1 when one of them is not content.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.cluster.conftest import serving

HERE = Path(__file__).resolve().parent
RUNNERS = ("run_vllm_tests.py", "run_schemathesis.py", "run_load_tools.py")


def main() -> int:
    """Runs them."""
    config = (HERE / "server.yaml").read_text()
    failed = []
    with tempfile.TemporaryDirectory() as folder, serving(config, Path(folder)) as service:
        for runner in RUNNERS:
            print(f"== {runner}", flush=True)
            done = subprocess.run([sys.executable, HERE / runner, "--base-url", service.base_url], check=False)
            failed += [runner] if done.returncode else []
    print(f"not content: {', '.join(failed)}" if failed else "all three are content")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
