"""C code of one robot's dynamics, from an expression graph over the kernels' recursion."""
