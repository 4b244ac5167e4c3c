#!/bin/sh
# 300 users, TTFT within a second: which hardware? Run it in docs/examples.
kvroom search llama-3.1-8b --users 300 --workload input=2K,output=300 \
    --slo ttft_p95=1s --gpus L40S,H100-SXM --counts 1,2 --engine-version 0.33.0 \
    --simulate 2 --cluster processes:1
kvroom plan llama-3.1-8b --gpu L40S --replicas 3 --users 300 --input-tokens 2K \
    --output-tokens 300 --weight-dtype fp8 --engine-version 0.33.0
kvroom launch llama-3.1-8b --gpu L40S --context 8K --weight-dtype fp8 --engine-version 0.33.0
