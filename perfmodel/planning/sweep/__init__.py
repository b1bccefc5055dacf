"""Sweeps: every combination of settings, millions at a time, by curves read off once."""
