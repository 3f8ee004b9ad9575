"""`tokenwire serve`: from a configuration to two open doors, phase by phase, and back to nothing."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tokenwire_server import preflight, serve_env
from tokenwire_server.config import ConfigError, ServiceConfig, default_config, load_file
from tokenwire_server.embedded import provide
from tokenwire_server.errors import StartError

__all__ = ["serve"]

_POLL_S = 0.1
_KILL_S = 5.0
"""How long a killed process may take to be gone."""


class _StoppedError(Exception):
    """Ctrl-C or SIGTERM came during the start."""


def serve(args: argparse.Namespace) -> int:
    """Runs the command; returns its exit code."""
    screen, ending = _Screen(), _Ending()
    ending.listen()
    try:
        with screen.phase("config"):
            config = _configured(args, screen)
        with _cluster(args, config, screen, ending) as serving:
            _deploy(serving, args, config, screen, ending)
            screen.ready(args, config)
            ending.asked.wait()
            screen.line("stopping: open streams may finish (Ctrl-C again to end at once)")
        screen.line("stopped")
    except (ConfigError, StartError) as error:
        for line in str(error).splitlines():
            print(f"tokenwire: {line}", file=sys.stderr)
        return StartError.EXIT_CODE
    except _StoppedError:
        screen.line("stopped during the start")
    return 0


class _Screen:
    """What the operator sees: one line for each phase, with its seconds."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._terminal = sys.stdout.isatty()

    def line(self, text: str) -> None:
        """A plain line."""
        print(text, flush=True)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A phase: on a terminal it shows while it lasts."""
        began = time.monotonic()
        if self._terminal:
            print(f"  {name} ...", end="\r", flush=True)
        yield
        print(f"  {name:<12} {time.monotonic() - began:6.1f} s", flush=True)

    def ready(self, args: argparse.Namespace, config: ServiceConfig) -> None:
        """The addresses, and how to call them."""
        models = [llm.model_loading_config.model_id for llm in config.llm_configs]
        model = models[0]
        key = "-H 'authorization: Bearer YOUR_KEY' " if config.secret_keys() else ""
        grpc, rest = f"localhost:{args.grpc_port}", f"localhost:{args.http_port}"
        named = f'"model":"{model}",' if len(models) > 1 else ""
        argument = f', model="{model}"' if len(models) > 1 else ""
        ask = "What is the capital of France?"
        print(
            f"""
ready in {time.monotonic() - self._began:.1f} s: {", ".join(models)}
  gRPC  {grpc}
  REST  http://{rest}/v1

  grpcurl -plaintext {key}-d '{{{named}"messages":[{{"role":"ROLE_USER","content":[{{"text":"{ask}"}}]}}]}}' \\
    {grpc} tokenwire.v1.ChatService/StreamChat
  curl -N http://{rest}/v1/chat/completions {key}-H 'content-type: application/json' \\
    -d '{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"{ask}"}}]}}'
  python -c 'import tokenwire; print(tokenwire.Client("{grpc}").chat("{ask}"{argument}).choices[0].content)'
  tokenwire chat {grpc}
""",
            flush=True,
        )


class _Ending:
    """The end of the service: asked for by the first Ctrl-C or SIGTERM, forced by the second one."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.run_dir: Path | None = None
        self._mine: set[psutil.Process] = set()

    def listen(self) -> None:
        """Takes the signals.

        Again after Ray has started: it sets handlers of its own, which would end this process without a drain and
        leave HAProxy behind.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, _number: int, _frame: Any) -> None:
        if not self.asked.is_set():
            self.note_processes()
            self.asked.set()
            return
        _kill(self._mine)
        if self.run_dir is not None:
            shutil.rmtree(self.run_dir, ignore_errors=True)
        os._exit(130)

    def wait_for(self, done: Callable[[], bool]) -> None:
        """Returns when `done` does say so.

        Raises:
            _StoppedError: The end was asked for first.
        """
        while not done():
            if self.asked.wait(_POLL_S):
                raise _StoppedError

    def clean_up(self) -> None:
        """Ends what is left of processes that were ours, by their pids, and removes the run's files."""
        alive = _with_descendants(self._mine)
        for how, seconds in (("wait", 2), ("terminate", 5)):
            for process in alive if how != "wait" else ():
                with suppress(psutil.NoSuchProcess):
                    process.terminate()
            alive = {one for one in psutil.wait_procs(alive, timeout=seconds)[1] if not _is_zombie(one)}
        _kill(alive)
        if self.run_dir is not None:
            shutil.rmtree(self.run_dir, ignore_errors=True)

    def note_processes(self) -> None:
        """Remembers the processes below this one, before those in between end."""
        self._mine = _with_descendants(self._mine)


def _is_zombie(process: psutil.Process) -> bool:
    """Whether it has ended and nobody has asked; in a container that may stay so."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _with_descendants(processes: Iterable[psutil.Process]) -> set[psutil.Process]:
    """`processes`, and all below them and below this one."""
    found = set(processes)
    for process in (psutil.Process(), *processes):
        with suppress(psutil.NoSuchProcess):
            found.update(process.children(recursive=True))
    return found


def _kill(processes: Iterable[psutil.Process]) -> None:
    """Ends `processes` and all below them and below this one, and waits for it.

    They are stopped first: a Raylet starts a new worker in the place of one that ended.
    """
    stopped: set[psutil.Process] = set()
    found = set(processes)
    while running := (found := _with_descendants(found)) - stopped:
        for process in running:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        stopped |= running
    for process in stopped:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + _KILL_S
    while time.monotonic() < deadline and not all(map(_is_zombie, stopped)):
        time.sleep(_POLL_S)


def _configured(args: argparse.Namespace, screen: _Screen) -> ServiceConfig:
    """Reads the configuration and checks all that can be known before a process starts."""
    config = load_file(Path(args.config)) if args.config else default_config()
    config.admin = config.admin or args.admin
    preflight.check_host(args.host)
    for deployment in (config.ingress_deployment_config, *(llm.deployment_config for llm in config.llm_configs)):
        if deployment.graceful_shutdown_timeout_s is None:
            deployment.graceful_shutdown_timeout_s = args.drain_timeout
    for llm in config.llm_configs:
        preflight.check_engine_installed(llm)
        preflight.check_model(llm)
    if not args.address:
        ports = [(args.grpc_port, "--grpc-port"), (args.http_port, "--http-port")]
        if args.grpc_port == args.http_port:
            raise StartError(f"--grpc-port and --http-port are both {args.grpc_port}: choose two")
        serve_env.check_ports(args.host, [*ports, *serve_env.auxiliary_ports(os.environ)])
    engines = [llm for llm in config.llm_configs if llm.llm_engine == "vLLM"]
    for llm in engines:
        loading = llm.model_loading_config
        if loading.source.startswith("embedded:"):
            loading.model_source = str(provide(loading.source, lambda text: screen.line(f"  {text}")))
    if not args.address and not _has_gpu() and any(llm.llm_engine != "echo" for llm in config.llm_configs):
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        preflight.check_memory(engines, os.environ)
    return config


def _has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists()


@contextmanager
def _cluster(args: argparse.Namespace, config: ServiceConfig, screen: _Screen, ending: _Ending) -> Iterator[Any]:
    """Ray, started here or joined; yields the serving module. Leaves no process of its own behind."""
    run_dir = ending.run_dir = Path(tempfile.mkdtemp(prefix="tw-"))
    limits = config.limits
    serve_env.apply(serve_env.serve_environment(limits.max_timeout_s, limits.max_message_bytes), os.environ)
    if not args.address:
        serve_env.apply(serve_env.local_environment(run_dir, os.environ), os.environ)
    if not args.verbose:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    try:
        with screen.phase("ray"):
            from tokenwire_server import serving

            serving.connect(args.address, run_dir, verbose=args.verbose)
        ending.listen()
        try:
            yield serving
        finally:
            ending.note_processes()
            serving.stop()
    finally:
        ending.clean_up()


def _deploy(serving: Any, args: argparse.Namespace, config: ServiceConfig, screen: _Screen, ending: _Ending) -> None:
    with screen.phase("serve"):
        serving.start_serve(host=args.host, grpc_port=args.grpc_port, http_port=args.http_port)
        serving.deploy(serving.build_app(config))
    with screen.phase("model"):
        ending.wait_for(lambda: serving.start_state(config))
    with screen.phase("doors"):
        ending.wait_for(lambda: serving.doors_open(args.grpc_port, args.http_port))
