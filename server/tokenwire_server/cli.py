"""The `tokenwire` command. Starts with nothing but the plain install, and says which extra a command needs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from tokenwire_server import __version__

__all__ = ["main"]

_EXTRAS = {
    "rich": "cli",
    "grpc_health": "cli",
    "yaml": "server",
    "pydantic": "server",
    "ray": "server",
    "fastapi": "server",
    "structlog": "server",
    "psutil": "server",
    "protovalidate": "server",
    "orjson": "server",
    "starlette": "server",
    "uvicorn": "server",
}
"""Module that is missing -> extra that brings it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code: 0, 1 for a failed call, 2 for usage, 3 for a failed start."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.run is None:
        parser.print_help()
        return 2
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        return run(args)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        print(f"tokenwire {args.command} needs the extra `{extra}`: pip install 'tokenwire[{extra}]'", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tokenwire", description="Large language models over gRPC and REST.")
    parser.add_argument("--version", action="version", version=f"tokenwire {__version__}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_serve(commands)
    _add_rest(commands)
    _add_chat(commands)
    _add_health(commands)
    check = commands.add_parser("check", help="check a configuration file and start nothing")
    check.add_argument("config", help="YAML file")
    check.set_defaults(run=_check)
    schema = commands.add_parser("schema", help="print the configuration's JSON Schema")
    schema.set_defaults(run=_schema)
    return parser


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = commands.add_parser(
        "serve",
        help="serve models over gRPC and REST",
        description="Serves what the configuration names; with none, a small chat model on the CPU.",
        epilog="Exits with 0 after Ctrl-C or SIGTERM, once streams have finished; with 3 when it could not start.",
    )
    serve.add_argument("config", nargs="?", help="YAML file; default: the embedded model")
    server = serve.add_argument_group("server")
    server.add_argument("--host", default="127.0.0.1", help="127.0.0.1 or 0.0.0.0 (default: %(default)s)")
    server.add_argument("--grpc-port", type=int, default=9000, help="port of gRPC (default: %(default)s)")
    server.add_argument("--http-port", type=int, default=8000, help="port of REST (default: %(default)s)")
    server.add_argument("--admin", action="store_true", help="answer AdminService")
    server.add_argument(
        "--drain-timeout",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds for open streams at the end (default: 30)",
    )
    ray = serve.add_argument_group("Ray")
    ray.add_argument("--address", help="Ray cluster to join; default: start one on this machine")
    ray.add_argument("--verbose", action="store_true", help="show the logs of Ray and of the replicas")
    serve.set_defaults(run=_serve)


def _add_rest(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    rest = commands.add_parser(
        "rest",
        help="serve REST alone, answered by a gRPC address",
        description="Translates OpenAI's REST surface and the native JSON routes to the gRPC of a running server.",
        epilog="Exits with 0 after Ctrl-C or SIGTERM, once streams have finished; with 3 when it could not start.",
    )
    rest.add_argument("--target", default="localhost:9000", help="host:port of gRPC (default: %(default)s)")
    rest.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    rest.add_argument("--http-port", type=int, default=8000, help="port of REST, 0 for any (default: %(default)s)")
    rest.add_argument(
        "--api-key",
        default="passthrough",
        metavar="KEY",
        help="sent to the target in place of the caller's, which opens it to whoever reaches this port; "
        "default: passthrough, the caller's own",
    )
    rest.add_argument(
        "--cors-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="origin whose pages may call, such as https://app.example; may be given more than once",
    )
    rest.add_argument("--tls", action="store_true", help="speak TLS to the target")
    rest.set_defaults(run=_rest)


def _add_chat(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    chat = commands.add_parser("chat", help="talk to a running server")
    chat.add_argument("target", nargs="?", default="localhost:9000", help="host:port (default: %(default)s)")
    chat.add_argument("--model", default="", help="model id; default: the only one")
    chat.add_argument("--api-key", default="", help="API key; default: TOKENWIRE_API_KEY")
    chat.add_argument("--system", default="", help="system message")
    chat.add_argument("--max-tokens", type=int, default=None, help="tokens of an answer at most")
    chat.add_argument("--temperature", type=float, default=None, help="0 to 2")
    chat.set_defaults(run=_chat)


def _add_health(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    health = commands.add_parser("health", help="ask a server whether it serves; exit 0 if so")
    health.add_argument("target", nargs="?", default="localhost:9000", help="host:port (default: %(default)s)")
    health.add_argument("--service", default="", help="service or model id; default: all of it")
    health.add_argument("--timeout", type=float, default=5.0, metavar="S", help="seconds (default: %(default)s)")
    health.set_defaults(run=_health)


# Each command imports what it needs when it runs: that is how the plain install gets as far as the hint.


def _serve(args: argparse.Namespace) -> int:
    from tokenwire_server.cli_serve import serve

    return serve(args)


def _rest(args: argparse.Namespace) -> int:
    from tokenwire_server.cli_rest import rest

    return rest(args)


def _chat(args: argparse.Namespace) -> int:
    import os

    from tokenwire_server.cli_chat import chat

    return chat(
        args.target,
        model=args.model,
        api_key=args.api_key or os.environ.get("TOKENWIRE_API_KEY", ""),
        system=args.system,
        max_tokens=args.max_tokens,
        temperature=args.temperature,
    )


def _health(args: argparse.Namespace) -> int:
    from tokenwire_server.cli_chat import health

    return health(args.target, args.service, args.timeout)


def _check(args: argparse.Namespace) -> int:
    from pathlib import Path

    from tokenwire_server.config import ConfigError, load_file
    from tokenwire_server.errors import StartError
    from tokenwire_server.preflight import check_names

    try:
        config = load_file(Path(args.config))
        for one in config.llm_configs:
            check_names(one)
    except (ConfigError, StartError) as error:
        print(error, file=sys.stderr)
        return StartError.EXIT_CODE
    names = ", ".join(one.model_loading_config.model_id for one in config.llm_configs)
    print(f"{args.config}: fine ({names})")
    return 0


def _schema(_args: argparse.Namespace) -> int:
    import json

    from tokenwire_server.config import ServiceConfig

    print(json.dumps(ServiceConfig.model_json_schema(), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
