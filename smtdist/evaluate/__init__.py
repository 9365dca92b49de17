"""How good a representation is: nearest neighbours and the numbers that sum them up."""
