"""Figures and pages made from results. Drawing needs `perfmodel[plots]`."""
