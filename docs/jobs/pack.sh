#!/bin/sh
# Do these models fit one node, and how are they started? Run it in docs/examples.
kvroom pack models.yaml --gpu H100-SXM
kvroom pack sleepers.yaml --gpu H100-SXM --no-times
kvroom pack models.yaml --gpus L4,L40S,H100-SXM --no-times
