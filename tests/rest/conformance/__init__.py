"""Field reports about OpenAI-compatible servers as requests with the right answer, run against any base URL.

The cases are in tests/rest/data/openai_rest.jsonl, one a line. `python -m tests.rest.conformance --base-url URL` prints
which pass.
"""
