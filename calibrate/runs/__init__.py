"""One module per family: what a case computes and moves, and how to run it."""
