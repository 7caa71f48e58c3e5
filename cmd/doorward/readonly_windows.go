package main

// isReadOnly reports false: no agent is contained here.
func isReadOnly(string) bool { return false }
