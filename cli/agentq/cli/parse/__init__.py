"""What was typed: options, arguments, and the faults in them."""
