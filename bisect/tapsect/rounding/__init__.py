"""Numbers in place of tolerances: floors, ratios, and what is not smooth.  numpy only."""
