"""Print an answer as it comes, and stop when there is enough of it: python client_stream.py [target]."""

from __future__ import annotations

import sys

import tokenwire

ENOUGH = 500


def main(target: str) -> None:
    with tokenwire.Client(target) as client:
        # Leaving the block cancels the answer at the server, wherever that happens.
        with client.stream_chat("Tell me about the sea.", return_token_ids=True) as stream:
            for delta in stream:
                print(delta.content, end="", flush=True)
                if len(stream.text) > ENOUGH:
                    break
        print()
        for choice in stream.response.choices:
            print(f"choice {choice.index}: {len(choice.token_ids)} tokens")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9000")
