package mail

// Topics of store signals: a waiting caller is woken by the signal and reads again.
func TopicMailbox(peerID string) string { return "mailbox:" + peerID }
func TopicMessage(id string) string     { return "message:" + id }
func TopicSpawn(id string) string       { return "spawn:" + id }

// TopicPeers is signalled when a peer is bound, renamed or released.
const TopicPeers = "peers"

// TopicHeld is signalled when a message is held.
const TopicHeld = "held"
