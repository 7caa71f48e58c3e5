package peer

// ProtectSelf switches core files off. macOS itself restricts attaching to a process, so
// nothing is done about that.
func ProtectSelf() error { return noCore() }
