"""What is left of earlier lives: processes, files, the predecessor's lease."""
