package main

import "github.com/spf13/cobra"

// newAgent returns the commands of the operator for messaging. The daemon refuses their
// acts to the shells of agents.
func newAgent() *cobra.Command {
	return group("agent", "manage the messages of agents",
		newPeers(), newSend(), newInbox(), newTail(), newTrace(), newHold(), newTransfer(), newStop(), newFsck(), newHook())
}
