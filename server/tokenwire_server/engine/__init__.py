"""What answers: the Engine protocol, proto in and proto out, and what fulfils it.

Nothing is imported here: `echo` needs no vLLM, and only `vllm_*` modules import it.
"""
