"""Scheduling over blocks: vLLM's scheduler, by which engines are served too whose own is not modelled."""
