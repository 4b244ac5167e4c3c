"""Bytes on one rank: weights, cache, drafts, and the ledger that adds them up."""
