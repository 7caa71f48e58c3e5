package main

// mayWrite reports true: the daemon does not run on Windows.
func mayWrite(string) bool { return true }

// isReadOnly reports false: no agent is contained on Windows.
func isReadOnly(string) bool { return false }
