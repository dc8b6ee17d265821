"""What operators have in common around their kernels: each rule is here once."""
