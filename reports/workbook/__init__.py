"""A capacity plan as a spreadsheet with live formulas, and its tables as CSV and Parquet."""
