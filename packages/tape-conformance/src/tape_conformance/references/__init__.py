"""Reference values, a module for each chapter of ops: functions on NumPy arrays by the name of the op."""
