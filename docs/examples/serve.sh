#!/bin/bash
TP=1
if [ "$GPUS" = 8 ]; then
  TP=8
fi
vllm serve openai/gpt-oss-120b --tensor-parallel-size $TP --port 8000
