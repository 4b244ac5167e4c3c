"""LMDeploy: a share of what the loaded model leaves free, TurboMind and the PyTorch engine."""
