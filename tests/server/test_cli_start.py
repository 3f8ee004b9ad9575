"""Every wrong start says in one line what is wrong and what to do, and leaves nothing; a right one starts and stops."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.server.test_docs import blocks
from tokenwire import Client, UnavailableError
from tokenwire_server import serve_env

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

ECHO = "llm_configs: [{model_loading_config: {model_id: m}, llm_engine: echo}]"

SITECUSTOMIZE = """
import os
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, *rest: None if name in os.environ["TEST_MISSING"].split(",") else find(name, *rest)
)
"""
"""Makes packages look as if they were not installed, to `import` and to `find_spec` alike."""

EXTRAS = (
    "rich,grpc_health,yaml,pydantic,ray,fastapi,structlog,psutil,protovalidate,orjson,starlette,uvicorn,grpc_reflection"
)
"""What the plain install does not bring."""


@dataclass
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    def refused(self, *words: str, code: int = 3) -> None:
        """Asserts that it refused with one line that has all these words, and had started nothing."""
        assert self.code == code, self
        assert len(self.err.splitlines()) == 1, self.err
        assert "Traceback" not in self.err + self.out
        for word in words:
            assert word in self.err


class Command:
    """Runs `tokenwire` with an environment of its own, and finds what it leaves behind.

    Its temporary folder has a short name, since the paths of Ray's sockets must not exceed 107 characters.
    """

    def __init__(self, folder: Path, work: Path) -> None:
        self.folder = folder
        self.work = work
        self._mark = uuid.uuid4().hex
        # Serve gives replicas the same first ports in every cluster of a machine, and gRPC shares a port that it finds
        # taken: with these, a cluster of somebody else on this machine gets none of our calls.
        base = free_block(200)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "TOKENWIRE_"))},
            "TMPDIR": str(folder),
            "TEST_MARK": self._mark,
            "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(base),
            "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(base + 99),
            "RAY_SERVE_DIRECT_INGRESS_MIN_GRPC_PORT": str(base + 100),
            "RAY_SERVE_DIRECT_INGRESS_MAX_GRPC_PORT": str(base + 199),
        }

    def __call__(self, *arguments: str, **environment: str) -> Outcome:
        done = subprocess.run(
            [BIN / "tokenwire", *arguments],
            cwd=self.work,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def serve(self, config: str, *arguments: str, **environment: str) -> Outcome:
        """`tokenwire serve` of a YAML text, on two free ports unless arguments say others."""
        (self.work / "config.yaml").write_text(config)
        ports = ("--grpc-port", str(free_port()), "--http-port", str(free_port()))
        return self("serve", "config.yaml", *ports, *arguments, **environment)

    def without(self, packages: str) -> dict[str, str]:
        """Environment in which these packages are not installed."""
        (self.work / "sitecustomize.py").write_text(SITECUSTOMIZE)
        return {"PYTHONPATH": str(self.work), "TEST_MISSING": packages}

    def processes(self) -> list[psutil.Process]:
        """Whatever runs and was started by these commands: it has inherited the mark."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("TEST_MARK") == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def files(self) -> list[str]:
        """What is in the temporary folder."""
        return sorted(path.name for path in self.folder.iterdir())


@contextmanager
def a_command() -> Iterator[Command]:
    folder = Path(tempfile.mkdtemp(prefix="t"))
    work = folder / "work"
    work.mkdir()
    temporary = folder / "t"
    temporary.mkdir()
    made = Command(temporary, work)
    try:
        yield made
    finally:
        left = made.processes()
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=10)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def tokenwire() -> Iterator[Command]:
    with a_command() as made:
        yield made
        assert (made.processes(), made.files()) == ([], [])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def free_block(size: int) -> int:
    """First of `size` ports that are free now and outside the range from which the system picks."""
    for base in range(10_000, 30_000, size):
        with ExitStack() as held:
            try:
                for port in range(base, base + size):
                    held.enter_context(socket.socket()).bind(("", port))
            except OSError:
                continue
            return base
    pytest.fail("no free block of ports")


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield int(holder.getsockname()[1])


# Wrong configurations: `serve` and `check` say the same.


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("llm_confgs: []", ["unknown key `llm_confgs`", "did you mean `llm_configs`?"]),
        (
            "topology: direct\nllm_configs: [{model_loading_config: {model_id: m},"
            " deployment_config: {autoscaling_config: {max_replica: 1}}}]",
            ["llm_configs[0].deployment_config.autoscaling_config", "`max_replica`", "did you mean `max_replicas`?"],
        ),
        (
            "llm_configs: [{model_loading_config: {model_id: m}, topolgy: direct}]",
            ["llm_configs[0]", "`topolgy`", "known:"],
        ),
        ("llm_configs: [", ["is not YAML", "line 1, column 15"]),
        ("- m", ["must be a mapping with the key llm_configs"]),
        ("", ["must be a mapping with the key llm_configs"]),
        ("llm_configs: []", ["llm_configs: ", "at least 1"]),
        ("llm_configs: [{model_loading_config: {model_id: m}}]\nlimits: {max_n: 0}", ["limits.max_n", "equal to 1"]),
        (
            "topology: direct\n"
            "llm_configs: [{model_loading_config: {model_id: a}}, {model_loading_config: {model_id: b}}]",
            ["topology direct serves one model", "auto or routed"],
        ),
        (
            "topology: direct\nllm_configs: [{model_loading_config: {model_id: m},"
            " deployment_config: {autoscaling_config: {min_replicas: 0}}}]",
            ["min_replicas 0"],
        ),
    ],
)
def test_a_wrong_configuration_is_named_with_its_file(tokenwire: Command, config: str, words: list[str]) -> None:
    tokenwire.serve(config).refused("tokenwire: config.yaml: ", *words)
    tokenwire("check", "config.yaml").refused("config.yaml: ", *words)


def test_a_missing_file_is_named(tokenwire: Command) -> None:
    tokenwire("serve", "none.yaml").refused("none.yaml: there is no such file")
    tokenwire("check", "none.yaml").refused("none.yaml: there is no such file")
    tokenwire("serve", ".").refused(".: cannot be read")


def test_each_of_several_mistakes_has_its_line(tokenwire: Command) -> None:
    done = tokenwire.serve(f"{ECHO}\nlimits: {{max_n: 0, max_timeout_s: -1}}")
    assert done.code == 3
    lines = done.err.splitlines()
    assert ["limits.max_n" in lines[0], "limits.max_timeout_s" in lines[1], len(lines)] == [True, True, 2]


def test_a_missing_model_folder_is_named(tokenwire: Command) -> None:
    config = "llm_configs: [{model_loading_config: {model_id: m, model_source: ./weights}}]"
    tokenwire.serve(config).refused("model_source ./weights: there is no such folder")
    (tokenwire.work / "weights").mkdir()
    tokenwire.serve(config).refused("model_source ./weights", "no config.json")


def test_an_unknown_embedded_model_is_named_with_those_that_there_are(tokenwire: Command) -> None:
    config = "llm_configs: [{model_loading_config: {model_id: m, model_source: 'embedded:gpt-5'}}]"
    tokenwire.serve(config).refused("embedded:gpt-5", "known: embedded:smollm2-135m-instruct")


# Wrong flags.


def test_a_port_in_use_is_named_with_what_moves_it(tokenwire: Command) -> None:
    with taken_port() as port:
        for flag in ("--grpc-port", "--http-port"):
            tokenwire.serve(ECHO, flag, str(port)).refused(f"port {port} is in use", flag)
        for name in (
            "RAY_SERVE_HAPROXY_STATS_PORT",
            "RAY_SERVE_HAPROXY_METRICS_PORT",
            "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT",
            "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT",
        ):
            tokenwire.serve(ECHO, **{name: str(port)}).refused(f"port {port} is in use", name)


def test_equal_ports_are_refused(tokenwire: Command) -> None:
    tokenwire.serve(ECHO, "--grpc-port", "9000", "--http-port", "9000").refused("--grpc-port and --http-port", "9000")


def test_a_port_that_cannot_be_is_refused(tokenwire: Command) -> None:
    tokenwire.serve(ECHO, "--http-port", "70000").refused("--http-port", "70000")


@pytest.mark.parametrize("host", ["10.0.0.1", "localhost", "::"])
def test_a_host_that_haproxy_cannot_bind_is_refused_with_the_reason(tokenwire: Command, host: str) -> None:
    tokenwire.serve(ECHO, "--host", host).refused(f"--host {host}", "must be 127.0.0.1", "every interface", "firewall")


def test_usage_is_shown_with_code_2(tokenwire: Command) -> None:
    nothing = tokenwire()
    assert (nothing.code, nothing.err) == (2, "")
    assert "serve models over gRPC and REST" in nothing.out
    wrong = tokenwire("serve", "--grcp-port", "1")
    assert wrong.code == 2
    assert "--grcp-port" in wrong.err


# What the machine lacks.


def fake_model(folder: Path) -> str:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(1024))
    return f"llm_configs: [{{model_loading_config: {{model_id: m, model_source: {folder}}}}}]"


def has_gpu() -> bool:
    return any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd"))


@pytest.mark.skipif(has_gpu(), reason="memory is checked for the CPU engine only")
def test_too_little_memory_is_said_in_numbers(tokenwire: Command) -> None:
    config = fake_model(tokenwire.work / "weights")
    tokenwire.serve(config, VLLM_CPU_KVCACHE_SPACE="100000").refused(
        "too little memory", "100000.0", "VLLM_CPU_KVCACHE_SPACE", "GiB are free"
    )
    tokenwire.serve(config, VLLM_CPU_KVCACHE_SPACE="lots").refused("VLLM_CPU_KVCACHE_SPACE must be a number of GiB")


def test_a_missing_vllm_is_said_with_the_extras_that_bring_it(tokenwire: Command) -> None:
    config = fake_model(tokenwire.work / "weights")
    done = tokenwire.serve(config, **tokenwire.without("vllm"))
    done.refused("vllm is not installed", "tokenwire[cpu]", "tokenwire[gpu]", "llm_engine: echo")


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [(["serve"], "server"), (["check", "x.yaml"], "server"), (["schema"], "server"), (["health"], "cli")],
)
def test_the_plain_install_names_the_extra_of_a_command(tokenwire: Command, arguments: list[str], extra: str) -> None:
    done = tokenwire(*arguments, **tokenwire.without(EXTRAS))
    done.refused(f"tokenwire {arguments[0]} needs the extra `{extra}`", f"pip install 'tokenwire[{extra}]'", code=2)


def test_the_plain_install_has_version_and_chat(tokenwire: Command) -> None:
    plain = tokenwire.without(EXTRAS)
    assert tokenwire("--version", **plain).out.startswith("tokenwire ")
    tokenwire("chat", f"localhost:{free_port()}", **plain).refused("cannot reach localhost", code=1)


@pytest.mark.parametrize("package", ["yaml", "pydantic", "psutil", "ray", "fastapi", "protovalidate", "orjson"])
def test_any_package_of_the_extra_that_is_missing_is_said_before_a_process_starts(
    tokenwire: Command, package: str
) -> None:
    done = tokenwire.serve(ECHO, **tokenwire.without(package))
    done.refused("needs the extra `server`", code=2)


def test_two_services_of_one_machine_have_replica_ports_of_their_own(tmp_path: Path) -> None:
    # Serve's replicas listen with SO_REUSEPORT: two services with the same port get each other's gRPC calls.
    variables = serve_env.local_environment(tmp_path, {})
    assert {"RAY_SERVE_DIRECT_INGRESS_MIN_GRPC_PORT", "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT"} <= variables.keys()


# From here on Ray runs: one cluster at a time.


@pytest.fixture
def alone() -> None:
    """A machine of two cores does not carry two clusters of one test run."""
    mine = psutil.Process().children(recursive=True)
    assert not [one for one in mine if one.name() == "raylet"], "another Ray cluster of this test run is up"


@pytest.mark.parametrize(
    ("engine", "key", "words"),
    [
        ("echo", "engine_kwargs: {ttft: 3}", ("engine_kwargs.ttft", "ttft_ms")),
        ("vLLM", "engine_kwargs: {max_model_length: 3}", ("engine_kwargs.max_model_length", "max_model_len")),
        ("scripted", "engine_kwargs: {tokens_per_stop: 3}", ("engine_kwargs.tokens_per_stop", "tokens_per_step")),
        ("vLLM", "engine_kwargs: {model: x}", ("engine_kwargs.model is not",)),
    ],
)
def test_an_unknown_engine_argument_is_named_with_the_nearest_right_one(
    tokenwire: Command, engine: str, key: str, words: tuple[str, ...]
) -> None:
    config = f"llm_configs: [{{model_loading_config: {{model_id: m}}, llm_engine: {engine}, {key}}}]"
    tokenwire.serve(config).refused(*words)
    tokenwire("check", "config.yaml").refused(*words)


@contextmanager
def ray_head(tokenwire: Command, environment: Mapping[str, str]) -> Iterator[str]:
    """A Ray of its own ports, folder and token, without Serve's variables; yields its address."""
    port = free_port()
    command = [str(BIN / "ray"), "start", "--head", "--block", "--port", str(port), "--num-cpus", "2"]
    command += ["--temp-dir", str(tokenwire.folder / "r"), "--include-dashboard", "false", "--disable-usage-stats"]
    command += ["--min-worker-port", "0", "--max-worker-port", "0"]
    command += ["--dashboard-agent-listen-port", str(free_port()), "--ray-client-server-port", str(free_port())]
    head = subprocess.Popen(
        command,
        env={**tokenwire.environment, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert head.stdout is not None
    started = psutil.Process(head.pid)
    children: list[psutil.Process] = []
    try:
        lines = []
        for line in head.stdout:
            lines.append(line)
            if "--block" in line:
                break
        else:
            pytest.fail(f"ray start: {''.join(lines)}")
        yield f"127.0.0.1:{port}"
    finally:
        with ExitStack() as cleanup:
            cleanup.callback(head.stdout.close)
            children = started.children(recursive=True) if started.is_running() else []
            head.terminate()
            head.wait(timeout=20)
            for child in children:
                if child.is_running():
                    child.terminate()
            _, alive = psutil.wait_procs(children, timeout=5)
            for child in alive:
                child.kill()
    shutil.rmtree(tokenwire.folder / "r")


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("alone")
def test_a_ray_with_other_settings_is_told_apart_and_left_alone(tokenwire: Command) -> None:
    # Ray wants a token by default. One made here, so that nobody's own is read or written.
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex * 2}
    with ray_head(tokenwire, token) as address:
        done = tokenwire.serve(ECHO, "--address", address, **token)
        done.refused(
            f"Ray at {address} runs with other settings", *(f"{k}={v}" for k, v in serve_env.ESSENTIAL.items())
        )
        assert "gcs_server" in {process.name() for process in tokenwire.processes()}


@dataclass
class Running:
    """An echo service that is up."""

    tokenwire: Command
    process: subprocess.Popen[str]
    shown: str
    grpc_target: str

    def stopped(self, *signals: signal.Signals) -> Outcome:
        """Sends the signals, each once it has been told that the one before was heard; waits for the end."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        heard = ""
        for number in signals:
            self.process.send_signal(number)
            if not heard:
                heard = self.process.stdout.readline()
                assert heard.startswith("stopping"), heard
        rest = self.process.stdout.read()
        return Outcome(self.process.wait(timeout=60), heard + rest, self.process.stderr.read())


@pytest.fixture
def echo(alone: None) -> Iterator[Callable[[], Running]]:
    """Starts `tokenwire serve examples/echo.yaml` on free ports."""
    with ExitStack() as cleanup:
        tokenwire = cleanup.enter_context(a_command())
        grpc_port, http_port = free_port(), free_port()

        def start() -> Running:
            flags = ["--grpc-port", str(grpc_port), "--http-port", str(http_port)]
            process = cleanup.enter_context(
                subprocess.Popen(
                    [BIN / "tokenwire", "serve", ROOT / "examples" / "echo.yaml", *flags],
                    env=tokenwire.environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            cleanup.callback(process.kill)
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if "tokenwire chat" in line:
                    break
            assert process.stdout.readline() == "\n"
            text = "".join(lines)
            assert f"gRPC  localhost:{grpc_port}\n" in text
            assert f"REST  http://localhost:{http_port}/v1\n" in text
            return Running(tokenwire, process, text, f"localhost:{grpc_port}")

        yield start


def the_readmes_calls_work(shown: str) -> None:
    """Runs the four calls of the README as they stand, but for ports and model; echo answers with the question."""
    section = (ROOT / "README.md").read_text().partition("## Four ways")[2].partition("\n## ")[0]
    grpc_target, http_target = re.findall(r"(localhost:\d+)", shown)[:2]
    for old, new in {"localhost:9000": grpc_target, "localhost:8000": http_target, "smollm2-135m": "echo"}.items():
        assert old in section
        section = section.replace(old, new)
    calls = [["bash", "-euc", block] for block in blocks(section, "sh")]
    calls += [[sys.executable, "-c", block] for block in blocks(section, "python")]
    assert len(calls) == 4
    path = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    for call in calls:
        done = subprocess.run(call, env=path, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, (call, done.stderr)
        assert re.search(r"France\?", done.stdout), (call, done.stdout)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_starts_shows_its_phases_and_stops_at_a_signal(echo: Callable[[], Running], number: signal.Signals) -> None:
    service = echo()
    phases = re.findall(r"^  (\w+) +\d+\.\d s$", service.shown, re.MULTILINE)
    assert phases == ["config", "ray", "serve", "model", "doors"]
    assert re.search(r"^ready in \d+\.\d s: echo$", service.shown, re.MULTILINE)
    assert "\x1b" not in service.shown
    # What it printed works as it stands.
    call = re.search(r"^  tokenwire chat (\S+)$", service.shown, re.MULTILINE)
    assert call is not None
    health = service.tokenwire("health", call[1])
    assert (health.code, health.out) == (0, "SERVING\n"), health
    assert service.tokenwire.processes()
    if number == signal.SIGTERM:
        the_readmes_calls_work(service.shown)

    done = service.stopped(number)
    assert (done.code, done.err) == (0, "")
    assert service.tokenwire.processes() == []
    assert service.tokenwire.files() == []


@pytest.mark.timeout(90)
def test_an_open_stream_finishes_before_it_ends(echo: Callable[[], Running]) -> None:
    service = echo()
    with Client(service.grpc_target) as client, client.stream_chat("word", max_tokens=400) as stream:  # 2 s
        next(iter(stream))
        done = service.stopped(signal.SIGTERM)
        assert sum(1 for _ in stream) == 399
    assert done.code == 0


@pytest.mark.timeout(90)
def test_a_second_signal_does_not_wait_for_streams(echo: Callable[[], Running]) -> None:
    service = echo()
    with Client(service.grpc_target) as client, client.stream_chat("word", max_tokens=4000) as stream:  # 20 s
        next(iter(stream))
        done = service.stopped(signal.SIGTERM, signal.SIGTERM)
        with pytest.raises(UnavailableError):
            for _ in stream:
                pass
    assert (done.code, done.err) == (130, "")
    assert service.tokenwire.processes() == []
    assert service.tokenwire.files() == []


def test_killing_leaves_nothing_where_a_process_replaces_its_ended_children() -> None:
    program = """
import subprocess, sys, time, psutil
from tokenwire_server import cli_serve
replaces = [subprocess.Popen(["bash", "-c", "while :; do sleep 1000 & wait; done"]) for _ in range(4)]
while len(psutil.Process().children(recursive=True)) < 8:
    time.sleep(0.01)
children = [one for parent in replaces for one in psutil.Process(parent.pid).children()]
cli_serve._kill(children)
print(sorted(one.pid for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == ["sleep", "1000"]))
print([one.poll() for one in replaces])
"""
    before = [one.pid for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == ["sleep", "1000"]]
    assert before == []
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("[]\n[-9, -9, -9, -9]\n", "")
