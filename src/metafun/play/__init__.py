"""`metafun play`: a page in the browser to try models on, served on this machine only."""
