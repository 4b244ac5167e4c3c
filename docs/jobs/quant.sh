#!/bin/sh
# Which quant on my card? Run it anywhere.
kvroom fit --gpu RTX-4090
kvroom fit qwen3-32b --gpu RTX-4090
kvroom launch qwen3-32b --gpu RTX-4090 --engine ollama --weight-dtype q4_k_m --context 16K
