"""How long an operator takes on a device: operators in, seconds out."""
