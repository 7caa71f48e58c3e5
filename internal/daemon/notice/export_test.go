package notice

// Wait waits until the notices in progress have ended by themselves.
func (n *Notifier) Wait() { n.all.Wait() }
