"""Which blocks of the weights were selected, and how that compares with chance and with the paper."""
