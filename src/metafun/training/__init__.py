"""One training loop, and what surrounds it: evaluation, checkpoints, run folders, the paper's protocol, search."""
