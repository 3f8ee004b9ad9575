"""What goes wrong, and what to do about it: python client_errors.py [target]."""

from __future__ import annotations

import sys

import tokenwire


def ask(client: tokenwire.Client, question: str, **arguments: object) -> str:
    try:
        return tokenwire.text(client.chat(question, **arguments))
    except tokenwire.NotFoundError as error:
        return f"No such model. {error.message}"
    except tokenwire.InvalidArgumentError as error:
        return "Refused: " + "; ".join(f"{field} {description}" for field, description in error.field_violations)
    except (tokenwire.ResourceExhaustedError, tokenwire.UnavailableError) as error:
        return f"Busy, even after the client's own retries. Try again in {error.retry_delay or 10:.0f} s."
    except tokenwire.ApiError as error:
        return f"Failed. Give the operator this: {error.code.name} {error.reason} {error.request_id}"


def main(target: str) -> None:
    with tokenwire.Client(target, timeout=60) as client:
        print(ask(client, "Hello"))
        print(ask(client, "Hello", model="no-such-model"))
        print(ask(client, "Hello", temperature=99.0))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9000")
