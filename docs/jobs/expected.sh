#!/bin/sh
# My engine says 2.1x, I expected 16. Run it in docs/examples.
kvroom reconcile short.log --gpu H100-SXM:4 --expect 16
