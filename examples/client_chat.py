"""Ask, and ask again about the answer: python client_chat.py [target]."""

from __future__ import annotations

import sys

import tokenwire


def main(target: str) -> None:
    with tokenwire.Client(target) as client:
        messages = [
            {"role": "system", "content": "Answer in one sentence."},
            {"role": "user", "content": "Why is the sky blue?"},
        ]
        response = client.chat(messages, max_tokens=128, temperature=0.2)
        print(tokenwire.text(response))
        print(f"{response.usage.output_token_count} tokens")

        messages += [tokenwire.message(response), {"role": "user", "content": "And at sunset?"}]
        print(tokenwire.text(client.chat(messages, max_tokens=128)))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9000")
