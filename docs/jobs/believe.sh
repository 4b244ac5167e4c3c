#!/bin/sh
# Which command do I believe? Both say the same. Run it in docs/examples.
kvroom plan llama-3.1-8b --gpu H100-SXM --users 16 --input-tokens 1000 --output-tokens 200 \
    --engine-version 0.33.0
kvroom simulate llama-3.1-8b --gpu H100-SXM --users 16 --input-tokens 1000 --output-tokens 200 \
    --engine-version 0.33.0
