#!/bin/sh
# Which GPU for my agents? Run it in docs/examples.
kvroom simulate qwen3-coder-30b-a3b --gpu L40S --weight-dtype fp8 --context 64K --engine-version 0.33.0 \
    --workload arrivals=closed:8,input=6K,output=300,turns=4,think=20s,agent=6,tool=2s,result=1K,requests=200
kvroom simulate qwen3-coder-30b-a3b --gpu H100-SXM --weight-dtype fp8 --context 64K --engine-version 0.33.0 \
    --workload arrivals=closed:8,input=6K,output=300,turns=4,think=20s,agent=6,tool=2s,result=1K,requests=200
kvroom simulate qwen3-coder-30b-a3b --gpu L40S --weight-dtype fp8 --context 64K --engine-version 0.33.0 \
    --workload arrivals=closed:8,input=6K,output=300,turns=4,think=20s,agent=6,tool=2s,result=1K,requests=200 \
    --tier host:100GiB
