"""vLLM's CPU worker, mended in two places where vLLM 0.32 is wrong on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from vllm.lora.ops.torch_ops import lora_ops
from vllm.lora.punica_wrapper import punica_cpu
from vllm.v1.worker.cpu_worker import CPUWorker

__all__ = ["MendedCPUWorker"]

_shrink = lora_ops.bgmv_shrink


def _shrink_where_asked(
    inputs: torch.Tensor,
    lora_b_weights: torch.Tensor,
    output_tensor: torch.Tensor,
    lora_indices_tensor: torch.Tensor,
    scaling: float = 1.0,
) -> None:
    """VLLM's `bgmv_shrink`, for tokens that have an adapter.

    The index of one that has none is -1, which in torch is the last place: a request without an adapter was given the
    adapter that lay there. Nothing is added where what is shrunk is zero.
    """
    _shrink(inputs, lora_b_weights, output_tensor, lora_indices_tensor, scaling)
    without = lora_indices_tensor < 0
    if without.shape[0] == 1:  # one index for all rows, as for the logits of a prompt
        without = without.expand(output_tensor.shape[0])
    output_tensor[without] = 0


lora_ops.bgmv_shrink = punica_cpu.bgmv_shrink = _shrink_where_asked


class MendedCPUWorker(CPUWorker):  # type: ignore[misc]  # vLLM is not typed here
    """Draws for the unfinished part of a prompt without the request's generator; see above for adapters.

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
