"""Other calculators on the same cases, through their public interfaces."""
