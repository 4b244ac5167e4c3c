#!/bin/sh
# Which engine and release? The same question to two. Run it in docs/examples.
kvroom plan llama-3.1-8b --gpu H100-SXM --context 32K --engine vllm --engine-version 0.19.0
kvroom plan llama-3.1-8b --gpu H100-SXM --context 32K --engine sglang --engine-version 0.5.9
