"""Where bytes go: layout on a rank, the ledger of a device, engine rules."""
