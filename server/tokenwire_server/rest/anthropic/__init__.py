"""Anthropic's Messages API on one side, the contract's messages on the other: pure functions, one file a job."""
