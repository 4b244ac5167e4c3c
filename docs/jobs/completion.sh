#!/bin/sh
# What a slip of the hand is told. Run it in docs/examples.
kvroom plam llama-3.1-8b
