"""The data structures of a KV cache: requests, blocks, prefixes, layer groups."""
