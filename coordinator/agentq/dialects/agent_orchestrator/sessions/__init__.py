"""Sessions as clients of the other system see them."""
