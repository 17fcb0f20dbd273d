"""From trial specs to measurements: what is to be done, and two ways of getting it done."""
