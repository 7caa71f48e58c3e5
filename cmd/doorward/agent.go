package main

import "github.com/spf13/cobra"

// newAgent is the operator's side of messaging. The daemon refuses it to the
// shells of agents.
func newAgent() *cobra.Command {
	return group("agent", "manage the messages of agents",
		newPeers(), newSend(), newInbox(), newTail(), newTrace(), newHold(), newTransfer(), newStop(), newFsck(), newHook())
}
