"""Counting truths about language models, and a runner that asks any calculator for them.

``python -m conformance ADAPTER`` (docs/conformance.md). Nothing here but `perfmodel_adapter` knows
perfmodel.
"""
