package mail

// Topics of store signals: who waits for one is woken and looks.
func TopicMailbox(peerID string) string { return "mailbox:" + peerID }
func TopicMessage(id string) string     { return "message:" + id }
func TopicSpawn(id string) string       { return "spawn:" + id }

// TopicPeers is signalled when a peer was bound, renamed or released.
const TopicPeers = "peers"

// TopicHeld is signalled when a message was held.
const TopicHeld = "held"
