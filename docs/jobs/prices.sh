#!/bin/sh
# What does it cost, at which terms? Run it in docs/examples.
kvroom plan llama-3.1-8b --gpu 2xMI300X --users 64 --input-tokens 1K --output-tokens 300 \
    --engine-version 0.33.0 --price MI300X=2.10
kvroom plan llama-3.1-8b --gpu H100-SXM --users 64 --input-tokens 1K --output-tokens 300 \
    --engine-version 0.33.0 --price owned:30000:years=4:kwh=0.15:utilisation=0.6
kvroom compare h100.json h200.json
