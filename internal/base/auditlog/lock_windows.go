package auditlog

// beingWritten reports false: what is here was copied from the machine that writes it.
func beingWritten(string) (bool, error) { return false, nil }
