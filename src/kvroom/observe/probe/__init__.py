"""This machine, measured: memory, links, disks, GPUs."""
