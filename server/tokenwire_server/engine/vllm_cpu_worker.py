"""vLLM's CPU worker, safe for requests that carry a seed."""

from __future__ import annotations

from typing import Any

from vllm.v1.worker.cpu_worker import CPUWorker

__all__ = ["SeedSafeCPUWorker"]


class SeedSafeCPUWorker(CPUWorker):  # type: ignore[misc]  # vLLM is not typed here
    """Draws for the unfinished part of a prompt without the request's generator.

    When a step ends inside a prompt, vLLM 0.32 samples all the same, drops the token and turns the request's
    generator back by its offset. A generator of the CPU has no offset: torch raises "CPU Generator does not use
    offset" and the engine core dies, of one request with a seed and a prompt longer than a step.
    """

    def sample_tokens(self, grammar_output: Any) -> Any:
        """As vLLM's; generators of requests whose token is dropped sit it out, which leaves them where they were."""
        if self.use_v2_model_runner:  # it seeds by position, and has no generators
            return super().sample_tokens(grammar_output)
        batch, dropped = self.model_runner.input_batch, self.model_runner.discard_request_mask.np
        held = {index: batch.generators.pop(index) for index in [*batch.generators] if dropped[index]}
        try:
            return super().sample_tokens(grammar_output)
        finally:
            batch.generators.update(held)
